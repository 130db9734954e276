#include "bindings/core/refusals.h"

#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {

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

}  // namespace kolo
