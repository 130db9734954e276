#include "runtime/ordered_arguments.h"

#include "runtime/base/overlap.h"
#include "runtime/operation.h"

namespace kolo {
namespace {

bool is_shifted(const OrderedArguments& call) {
  return call.kind == OperationKind::kAllreduce &&
         are_shifted(call.input, call.output,
                     static_cast<std::size_t>(call.count) * size_of(call.type));
}

bool is_valid(const OrderedArguments& call, const Communicator& communicator) {
  const bool has_memory = call.count == 0 || (call.input != nullptr && call.output != nullptr);
  const bool reduces =
      call.kind == OperationKind::kAllreduce || call.kind == OperationKind::kReduceScatter;
  return call.count >= 0 && call.count <= static_cast<std::int64_t>(OneShot::kLargestMapped) &&
         has_memory && !is_shifted(call) &&
         (call.kind != OperationKind::kBroadcast || communicator.index_of(call.root).has_value()) &&
         (!reduces || (call.op != ReduceOp::kAdasum && is_supported(call.type, call.op)));
}

/// Preconditions: is_valid(), and one of the ordered door's kinds.
OneShot::Request exchange_for(const OrderedArguments& call, const Communicator& communicator) {
  const int size = communicator.size();
  const bool in_parts =
      call.kind == OperationKind::kAlltoall || call.kind == OperationKind::kReduceScatter;
  const auto parts = static_cast<std::uint64_t>(in_parts ? size : 1);
  return {.kind = exchange_of(call.kind).value_or(ExchangeKind::kBarrier),
          .type = call.type,
          .op = call.op,
          .root = call.kind == OperationKind::kBroadcast
                      ? communicator.index_of(call.root).value_or(0)
                      : 0,
          .prescale = {},
          .postscale = {1.0, call.op == ReduceOp::kAverage ? size : 1},
          .input = call.input,
          .output = call.output,
          .count = static_cast<std::uint64_t>(call.count) * parts};
}

bool carries(const OneShot& one_shot, const OneShot::Request& call) {
  const std::size_t bytes = call.bytes();
  return one_shot.takes(call.kind, bytes) || one_shot.trades(call.kind, bytes);
}

}  // namespace

std::optional<OneShot::Request> request_of(const OrderedArguments& call,
                                           const Communicator& communicator,
                                           const OneShot& one_shot) {
  if (!is_valid(call, communicator)) return std::nullopt;
  const OneShot::Request request = exchange_for(call, communicator);
  if (!carries(one_shot, request)) return std::nullopt;
  return request;
}

}  // namespace kolo
