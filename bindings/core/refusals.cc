#include "bindings/core/refusals.h"

#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {

std::vector<std::shared_ptr<Work>> refuse(std::vector<RefusedCall> calls, const std::string& why,
                                          const std::string& group, const ProcessSet& process_set) {
  std::vector<Submission> submissions;
  for (RefusedCall& call : calls) {
    Submission& submission = submissions.emplace_back();
    submission.name = std::move(call.name);
    submission.signature = std::move(call.signature);
    submission.process_set = process_set.id();
    submission.complaint = why;
  }
  return value_or_throw(runtime_for("refuse")->submit_group(std::move(submissions), group));
}

std::vector<std::shared_ptr<Work>> refuse_allreduces(const std::vector<std::string>& names,
                                                     const std::string& why,
                                                     const std::string& group,
                                                     const ProcessSet& process_set) {
  std::vector<RefusedCall> calls;
  for (const std::string& name : names)
    calls.push_back({name, {.kind = OperationKind::kAllreduce, .shape = {0}}});
  return refuse(std::move(calls), why, group, process_set);
}

void refuse_ordered(OperationKind kind, const std::string& why, const ProcessSet& process_set) {
  Submission submission =
      submission_of(kind, nullptr, {}, DataType::kFloat32, {.process_set = process_set});
  submission.complaint = why;
  try {
    // The work is dropped: the other ranks get the error from their own calls.
    static_cast<void>(runtime_for("refusal")->submit_ordered(std::move(submission)));
  } catch (const Exception&) {
    return;  // before init or after shutdown no rank waits
  }
}

}  // namespace kolo
