// What a blocking call of the ordered door is given, and what the boards make of it. Any thread.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/communicator/one_shot.h"
#include "runtime/submission/entry.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace kolo {

/// A blocking collective of the ordered door, all ranks of whose process set call it alike.
struct OrderedArguments {
  /// kAllreduce, kBroadcast, kAllgather, kAlltoall, kReduceScatter or kBarrier.
  OperationKind kind = OperationKind::kAllreduce;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  /// Elements: of an allreduce and a broadcast all, of a barrier none, else of one rank's part.
  std::int64_t count = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  ///< of a broadcast; a rank of the world
  std::uint32_t process_set = 0;
};

/// The call as the boards carry it; nothing if they do not, as far as one rank can tell without
/// the token. What is not valid, the queue refuses.
std::optional<OneShot::Request> request_of(const OrderedArguments& call,
                                           const Communicator& communicator,
                                           const OneShot& one_shot);

}  // namespace kolo
