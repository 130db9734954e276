#include "bindings/core/refusals.h"

#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {
namespace {

/// What becomes of it, the others are told by their own calls.
template <class Submit>
void submit_refusal(Submit&& submit) {
  try {
    static_cast<void>(submit(*runtime_for("refusal")));
  } catch (const Exception&) {
    return;  // before init or after shutdown nobody waits
  }
}

Submission refused_submission(const Signature& signature, const std::string& why,
                              const ProcessSet& set) {
  Submission submission;
  submission.signature = signature;
  submission.complaint = why;
  submission.process_set = set.id();
  return submission;
}

}  // namespace

std::vector<std::shared_ptr<Work>> refuse_allreduces(const std::vector<std::string>& names,
                                                     const std::string& why,
                                                     const std::string& group,
                                                     const ProcessSet& process_set) {
  std::vector<Submission> submissions;
  for (const std::string& name : names) {
    submissions.push_back(submission_of(OperationKind::kAllreduce, nullptr, {0}, DataType::kFloat32,
                                        {.name = name, .process_set = process_set}));
    submissions.back().complaint = why;
  }
  return value_or_throw(
      runtime_for("allreduce_async")->submit_group(std::move(submissions), group));
}

void refuse_ordered(OperationKind kind, const std::string& why, const ProcessSet& process_set) {
  submit_refusal([&](Runtime& runtime) {
    return runtime.submit_ordered(refused_submission({.kind = kind}, why, process_set)).ok();
  });
}

}  // namespace kolo
