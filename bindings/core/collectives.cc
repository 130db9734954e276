// The collectives on raw memory. They turn options into submissions. Any thread.
#include "bindings/core/step_scope.h"
#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {
namespace {

std::shared_ptr<Work> start(std::string_view call, Submission submission) {
  return value_or_throw(runtime_for(call)->submit(std::move(submission)));
}

}  // namespace

std::shared_ptr<Work> allreduce_async(const void* input, void* output, const Shape& shape,
                                      DataType type, const AllreduceOptions& options) {
  return value_or_throw(runtime_for("allreduce_async")
                            ->submit(allreduce_submission(input, output, shape, type, options)));
}

void allreduce(const void* input, void* output, const Shape& shape, DataType type,
               const AllreduceOptions& options) {
  const auto runtime = runtime_for("allreduce");
  auto submission = allreduce_submission(input, output, shape, type, options);
  submission.will_wait = true;
  finish(*value_or_throw(runtime->submit(std::move(submission))), options.stream);
}

std::shared_ptr<Work> broadcast_async(void* buffer, const Shape& shape, DataType type, int root,
                                      const BroadcastOptions& options) {
  auto submission = submission_of(OperationKind::kBroadcast, buffer, shape, type, options);
  submission.output = static_cast<std::byte*>(buffer);
  submission.signature.root = root;
  return start("broadcast_async", std::move(submission));
}

void broadcast(void* buffer, const Shape& shape, DataType type, int root,
               const BroadcastOptions& options) {
  finish(*broadcast_async(buffer, shape, type, root, options), options.stream);
}

std::shared_ptr<Work> allgather_async(const void* input, const Shape& shape, DataType type,
                                      Allocator allocate, const CollectiveOptions& options) {
  return start("allgather_async", row_submission(OperationKind::kAllgather, input, shape, type,
                                                 std::move(allocate), options));
}

void allgather(const void* input, const Shape& shape, DataType type, Allocator allocate,
               const CollectiveOptions& options) {
  finish(*allgather_async(input, shape, type, std::move(allocate), options), options.stream);
}

std::shared_ptr<Work> alltoall_async(const void* input, const Shape& shape, DataType type,
                                     const std::vector<std::int64_t>& splits, Allocator allocate,
                                     const CollectiveOptions& options) {
  auto submission =
      row_submission(OperationKind::kAlltoall, input, shape, type, std::move(allocate), options);
  submission.splits = splits;
  return start("alltoall_async", std::move(submission));
}

std::vector<std::int64_t> alltoall(const void* input, const Shape& shape, DataType type,
                                   const std::vector<std::int64_t>& splits, Allocator allocate,
                                   const CollectiveOptions& options) {
  const auto work = alltoall_async(input, shape, type, splits, std::move(allocate), options);
  finish(*work, options.stream);
  return work->received_splits();
}

std::shared_ptr<Work> reducescatter_async(const void* input, const Shape& shape, DataType type,
                                          Allocator allocate, const ReducescatterOptions& options) {
  return start("reducescatter_async", row_submission(OperationKind::kReduceScatter, input, shape,
                                                     type, std::move(allocate), options));
}

void reducescatter(const void* input, const Shape& shape, DataType type, Allocator allocate,
                   const ReducescatterOptions& options) {
  finish(*reducescatter_async(input, shape, type, std::move(allocate), options), options.stream);
}

std::shared_ptr<Work> gather_async(const void* input, const Shape& shape, DataType type, int root,
                                   Allocator allocate, const CollectiveOptions& options) {
  auto submission =
      row_submission(OperationKind::kGather, input, shape, type, std::move(allocate), options);
  submission.signature.root = root;
  return start("gather_async", std::move(submission));
}

void gather(const void* input, const Shape& shape, DataType type, int root, Allocator allocate,
            const CollectiveOptions& options) {
  finish(*gather_async(input, shape, type, root, std::move(allocate), options), options.stream);
}

std::shared_ptr<Work> scatter_async(const void* input, const Shape& shape, DataType type, int root,
                                    const std::vector<std::int64_t>& splits, Allocator allocate,
                                    const CollectiveOptions& options) {
  auto submission =
      row_submission(OperationKind::kScatter, input, shape, type, std::move(allocate), options);
  submission.signature.root = root;
  submission.splits = splits;
  return start("scatter_async", std::move(submission));
}

void scatter(const void* input, const Shape& shape, DataType type, int root,
             const std::vector<std::int64_t>& splits, Allocator allocate,
             const CollectiveOptions& options) {
  finish(*scatter_async(input, shape, type, root, splits, std::move(allocate), options),
         options.stream);
}

std::shared_ptr<Work> barrier_async(const CollectiveOptions& options) {
  return start("barrier_async",
               submission_of(OperationKind::kBarrier, nullptr, {}, DataType::kFloat32, options));
}

void barrier(const CollectiveOptions& options) { synchronize(*barrier_async(options)); }

int join(const ProcessSet& set) {
  auto submission = submission_of(OperationKind::kJoin, nullptr, {}, DataType::kFloat32, {});
  submission.process_set = number_of(set);
  const auto work = start("join", std::move(submission));
  synchronize(*work);
  return static_cast<int>(work->outcome().value);
}

bool poll(const Work& work) { return work.done(); }
void synchronize(Work& work) {
  Status status = work.wait();
  if (status.ok()) return;
  const std::int64_t latest = work.outcome().value;
  if (latest > 0) throw OutOfStep(std::move(status).error(), static_cast<std::uint64_t>(latest));
  raise(std::move(status).error());
}

}  // namespace kolo
