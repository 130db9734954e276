#include "bindings/core/refusals.h"

#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {
namespace {

/// Tells the runtime, if there is one: before init and after shutdown no rank waits. A work is
/// dropped: the other ranks get the error from their own calls.
template <class Tell>
void tell_runtime(Tell&& tell) {
  try {
    static_cast<void>(std::forward<Tell>(tell)(runtime_for("refusal")));
  } catch (const Exception&) {
    return;
  }
}

Submission refusal_of(RefusedCall call, const std::string& why, const ProcessSet& process_set) {
  Submission submission;
  submission.name = std::move(call.name);
  submission.signature = std::move(call.signature);
  submission.process_set = number_of(process_set);
  submission.complaint = why;
  return submission;
}

}  // namespace

std::vector<std::shared_ptr<Work>> refuse(std::vector<RefusedCall> calls, const std::string& why,
                                          const std::string& group, const ProcessSet& process_set) {
  std::vector<Submission> submissions;
  for (RefusedCall& call : calls)
    submissions.push_back(refusal_of(std::move(call), why, process_set));
  return value_or_throw(runtime_for("refuse")->submit_group(std::move(submissions), group));
}

std::vector<std::shared_ptr<Work>> refuse_caught(std::vector<RefusedCall> calls,
                                                 const std::string& why, const std::string& group,
                                                 const ProcessSet& process_set) {
  const std::exception_ptr failure = std::current_exception();
  try {
    return refuse(std::move(calls), why, group, process_set);
  } catch (const Exception&) {
    std::rethrow_exception(failure);
  }
}

void refuse_by_order(OperationKind kind, const std::string& why, const ProcessSet& process_set) {
  Submission submission = refusal_of({{}, {.kind = kind, .shape = {0}}}, why, process_set);
  submission.by_order = true;
  submission.dropped = true;
  tell_runtime([&](const auto& runtime) { return runtime->submit(std::move(submission)); });
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

void count_failed_unnamed(OperationKind kind, const ProcessSet& process_set) {
  tell_runtime(
      [&](const auto& runtime) { runtime->count_failed_unnamed(kind, number_of(process_set)); });
}

void refuse_ordered(OperationKind kind, const std::string& why, const ProcessSet& process_set) {
  Submission submission =
      submission_of(kind, nullptr, {}, DataType::kFloat32, {.process_set = process_set});
  submission.complaint = why;
  tell_runtime([&](const auto& runtime) { return runtime->submit_ordered(std::move(submission)); });
}

void refuse_message(OperationKind kind, int peer, std::uint32_t tag, const std::string& why,
                    const ProcessSet& process_set) {
  Submission submission =
      submission_of(kind, nullptr, {0}, DataType::kFloat32, {.process_set = process_set});
  submission.signature.root = peer;
  submission.tag = tag;
  submission.complaint = why;
  tell_runtime([&](const auto& runtime) { return runtime->submit_message(std::move(submission)); });
}

}  // namespace kolo
