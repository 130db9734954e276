// OrderedArguments: a blocking in-order call as users make it, and its form for the exchange. Any
// thread.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/exchange/exchange.h"
#include "runtime/submission/entry.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace kolo {

/// A blocking collective. All ranks of the process set make the same call.
struct OrderedArguments {
  /// A kind that is_ordered_kind().
  OperationKind kind = OperationKind::kAllreduce;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  /// Elements. Allreduce and broadcast: all; barrier: 0; other kinds: one rank's part.
  std::int64_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  ///< a rank of the world, for a kind that is_rooted()
  std::uint32_t process_set = 0;
  /// For Runtime::start_ordered(): the caller waits for the Work at once, so the spin is that of a
  /// blocking call.
  bool will_wait = false;
};

/// Gives the owner of a call's memory, which then lives until the call is done. Not asked by a call
/// that is done at once. Empty: the caller keeps the memory.
using KeepAlive = std::function<std::shared_ptr<const void>()>;

/// The call as a request to the exchange; nothing if the exchange does not carry it. Invalid calls
/// are left to the queue, which refuses them.
std::optional<Exchange::Request> request_of(const OrderedArguments& call,
                                            const Communicator& communicator,
                                            const ExchangeLimits& limits);

}  // namespace kolo
