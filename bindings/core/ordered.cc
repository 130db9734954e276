// In-order submission on raw memory. Any thread.
#include "bindings/core/global.h"
#include "bindings/core/ordered_start.h"
#include "bindings/core/submissions.h"

#include <utility>

namespace kolo {
namespace {

void call_ordered(std::string_view call, const OrderedArguments& arguments) {
  const InCall in_call;
  // The progress token keeps the runtime alive, so a call of a few bytes counts no references.
  Driver* const driver = arguments.process_set == 0 ? known_driver() : nullptr;
  if (driver == nullptr) return throw_if_failed(runtime_for(call)->call_ordered(arguments));
  if (!driver->call(arguments)) throw_if_failed(runtime_for(call)->queue_ordered(arguments));
}

const std::byte* bytes(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* bytes(void* memory) { return static_cast<std::byte*>(memory); }

}  // namespace

void allreduce_ordered(const void* input, void* output, std::int64_t count, DataType type,
                       ReduceOp op, const ProcessSet& set) {
  call_ordered("allreduce_ordered", {.input = bytes(input),
                                     .output = bytes(output),
                                     .count = count,
                                     .type = type,
                                     .op = op,
                                     .process_set = number_of(set)});
}

void broadcast_ordered(void* buffer, std::int64_t count, DataType type, int root,
                       const ProcessSet& set) {
  call_ordered("broadcast_ordered", {.kind = OperationKind::kBroadcast,
                                     .input = bytes(buffer),
                                     .output = bytes(buffer),
                                     .count = count,
                                     .type = type,
                                     .root = root,
                                     .process_set = number_of(set)});
}

void allgather_ordered(const void* input, void* output, std::int64_t count, DataType type,
                       const ProcessSet& set) {
  call_ordered("allgather_ordered", {.kind = OperationKind::kAllgather,
                                     .input = bytes(input),
                                     .output = bytes(output),
                                     .count = count,
                                     .type = type,
                                     .process_set = number_of(set)});
}

void alltoall_ordered(const void* input, void* output, std::int64_t count, DataType type,
                      const ProcessSet& set) {
  call_ordered("alltoall_ordered", {.kind = OperationKind::kAlltoall,
                                    .input = bytes(input),
                                    .output = bytes(output),
                                    .count = count,
                                    .type = type,
                                    .process_set = number_of(set)});
}

void reducescatter_ordered(const void* input, void* output, std::int64_t count, DataType type,
                           ReduceOp op, const ProcessSet& set) {
  call_ordered("reducescatter_ordered", {.kind = OperationKind::kReduceScatter,
                                         .input = bytes(input),
                                         .output = bytes(output),
                                         .count = count,
                                         .type = type,
                                         .op = op,
                                         .process_set = number_of(set)});
}

void gather_ordered(const void* input, void* output, std::int64_t count, DataType type, int root,
                    const ProcessSet& set) {
  call_ordered("gather_ordered", {.kind = OperationKind::kGather,
                                  .input = bytes(input),
                                  .output = bytes(output),
                                  .count = count,
                                  .type = type,
                                  .root = root,
                                  .process_set = number_of(set)});
}

void scatter_ordered(const void* input, void* output, std::int64_t count, DataType type, int root,
                     const ProcessSet& set) {
  call_ordered("scatter_ordered", {.kind = OperationKind::kScatter,
                                   .input = bytes(input),
                                   .output = bytes(output),
                                   .count = count,
                                   .type = type,
                                   .root = root,
                                   .process_set = number_of(set)});
}

void barrier_ordered(const ProcessSet& set) {
  call_ordered("barrier_ordered", {.kind = OperationKind::kBarrier, .process_set = number_of(set)});
}

std::shared_ptr<Work> start_ordered(const OrderedArguments& arguments,
                                    const KeepAlive& keep_alive) {
  OrderedArguments call = arguments;
  call.process_set = number_of(ProcessSet(arguments.process_set));
  return value_or_throw(runtime_for("start_ordered")->start_ordered(call, keep_alive));
}

std::shared_ptr<Work> start_by_order(Submission call, Allocator allocate) {
  call.by_order = true;
  call.process_set = number_of(ProcessSet(call.process_set));
  if (allocate) call.allocate = guarded(std::move(allocate));
  return value_or_throw(runtime_for("start_by_order")->submit(std::move(call)));
}

}  // namespace kolo
