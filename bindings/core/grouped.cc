// Groups of operations: all of them run or none. Any thread.
#include "bindings/core/submissions.h"

#include <string>
#include <utility>

namespace kolo {
namespace {

using Works = std::vector<std::shared_ptr<Work>>;

/// Names unnamed members after the group and submits all members.
Works start_group(std::string_view call, std::vector<Submission> members,
                  const std::string& group) {
  const auto runtime = runtime_for(call);
  for (std::size_t i = 0; i < members.size(); ++i) {
    std::string& name = members[i].name;
    if (group.empty() && !name.empty()) {
      raise(KOLO_ERROR(kInvalidArgument, "{}: member '{}' has a name, but its group has none", call,
                       name));
    }
    if (!group.empty() && name.empty()) name = group + "/" + std::to_string(i);
  }
  return value_or_throw(runtime->submit_group(std::move(members), group));
}

template <class Options>
Works start_rows(std::string_view call, OperationKind kind, std::vector<RowMember> members,
                 const Options& options) {
  std::vector<Submission> submissions;
  for (RowMember& member : members) {
    submissions.push_back(row_submission(kind, member.input, member.shape, member.type,
                                         std::move(member.allocate), options));
    submissions.back().name.clear();
  }
  return start_group(call, std::move(submissions), options.name);
}

void wait_for_all(const Works& works, const std::optional<CudaStream>& stream) {
  Status first;
  for (const auto& work : works) {
    Status status = work->wait();
    if (first.ok() && status.ok() && stream) status = work->order(*stream);
    if (first.ok()) first = std::move(status);
  }
  throw_if_failed(std::move(first));
}

}  // namespace

Works grouped_allreduce_async(const std::vector<GroupMember>& members,
                              const AllreduceOptions& options) {
  std::vector<Submission> submissions;
  for (const GroupMember& member : members) {
    auto& submission = submissions.emplace_back(
        allreduce_submission(member.input, member.output, member.shape, member.type, options));
    submission.name = member.name;
    submission.absent = options.absent || member.absent;
  }
  return start_group("grouped_allreduce_async", std::move(submissions), options.name);
}

void grouped_allreduce(const std::vector<GroupMember>& members, const AllreduceOptions& options) {
  wait_for_all(grouped_allreduce_async(members, options), options.stream);
}

Works grouped_allgather_async(std::vector<RowMember> members, const CollectiveOptions& options) {
  return start_rows("grouped_allgather_async", OperationKind::kAllgather, std::move(members),
                    options);
}

void grouped_allgather(std::vector<RowMember> members, const CollectiveOptions& options) {
  wait_for_all(grouped_allgather_async(std::move(members), options), options.stream);
}

Works grouped_reducescatter_async(std::vector<RowMember> members,
                                  const ReducescatterOptions& options) {
  return start_rows("grouped_reducescatter_async", OperationKind::kReduceScatter,
                    std::move(members), options);
}

void grouped_reducescatter(std::vector<RowMember> members, const ReducescatterOptions& options) {
  wait_for_all(grouped_reducescatter_async(std::move(members), options), options.stream);
}

}  // namespace kolo
