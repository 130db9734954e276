#include "runtime/cycle/ordered_arguments.h"

#include "runtime/base/overlap.h"

namespace kolo {
namespace {

bool is_shifted(const OrderedArguments& call) {
  return call.kind == OperationKind::kAllreduce &&
         are_shifted(call.input, call.output,
                     static_cast<std::size_t>(call.count) * size_of(call.type));
}

bool has_memory(const OrderedArguments& call, int rank) {
  const auto roots_alone = [&](OperationKind kind) {
    return call.kind == kind && call.root != rank;
  };
  return call.count == 0 || ((call.input != nullptr || roots_alone(OperationKind::kScatter)) &&
                             (call.output != nullptr || roots_alone(OperationKind::kGather)));
}

bool is_valid(const OrderedArguments& call, const Communicator& communicator) {
  const bool reduces =
      call.kind == OperationKind::kAllreduce || call.kind == OperationKind::kReduceScatter;
  return is_ordered_kind(call.kind) && call.count >= 0 &&
         call.count <= static_cast<std::int64_t>(thresholds::kExchangeInArena) &&
         has_memory(call, communicator.world().rank()) && !is_shifted(call) &&
         (!is_rooted(call.kind) || communicator.index_of(call.root).has_value()) &&
         (!reduces || (call.op != ReduceOp::kAdasum && is_supported(call.type, call.op)));
}

/// Preconditions: is_valid(), and a kind that in-order submission has.
Exchange::Request exchange_for(const OrderedArguments& call, const Communicator& communicator) {
  const int size = communicator.size();
  const bool in_parts = call.kind == OperationKind::kAlltoall ||
                        call.kind == OperationKind::kReduceScatter ||
                        call.kind == OperationKind::kScatter;
  const auto parts = static_cast<std::uint64_t>(in_parts ? size : 1);
  return {.kind = call.kind,
          .type = call.type,
          .op = call.op,
          .root = is_rooted(call.kind) ? communicator.index_of(call.root).value_or(0) : 0,
          .prescale = {},
          .postscale = {1.0, call.op == ReduceOp::kAverage ? size : 1},
          .input = call.input,
          .output = call.output,
          .count = static_cast<std::uint64_t>(call.count) * parts};
}

}  // namespace

std::optional<Exchange::Request> request_of(const OrderedArguments& call,
                                            const Communicator& communicator,
                                            const ExchangeLimits& limits) {
  if (!is_valid(call, communicator)) return std::nullopt;
  const Exchange::Request request = exchange_for(call, communicator);
  if (!limits.take(request.kind, request.bytes()) &&
      !limits.take_two_rank(request.kind, request.bytes()))
    return std::nullopt;
  return request;
}

}  // namespace kolo
