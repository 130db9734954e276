// OperationKind: what users can call, and how such calls differ. One enumeration for submission,
// planning, schedules, the exchange and fingerprints. Pure values and functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace kolo {

enum class OperationKind : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kAllgather,         ///< all ranks' inputs, end to end in order of rank, to all
  kAlltoall,          ///< a part of each rank's input to each rank
  kReduceScatter,     ///< the sum of all inputs, cut into a part for each rank
  kGather,            ///< all ranks' inputs, end to end in order of rank, to the root
  kScatter,           ///< a part of the root's input to each rank
  kBarrier,           ///< no memory
  kJoin,              ///< no memory
  kAddProcessSet,     ///< shape: the ranks
  kRemoveProcessSet,  ///< root: the set's id
  kSend,              ///< root: the receiver; not negotiated by name
  kReceive,           ///< root: the sender
};
inline constexpr int kOperationKindCount = 13;
std::string_view to_string(OperationKind kind);

/// Kinds that work on rows: ranks agree on the shape of a row, but not on the number of rows.
bool is_row_wise(OperationKind kind);
/// Kinds that run a schedule once they are agreed on. For the others, the agreement is all.
bool moves_data(OperationKind kind);
/// Kinds that can be submitted in order, without negotiation.
bool is_ordered_kind(OperationKind kind);
/// Kinds whose data goes one way, from the root or to it.
bool is_rooted(OperationKind kind);

}  // namespace kolo
