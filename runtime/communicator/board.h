// Board: how a rank's window begins, for each place of the window: where its rank says what it
// calls and publishes small inputs (OneShot). Written by its rank alone, read by all that map it.
//
// Calls have numbers that never come back: the process set's in the upper bits, then that of the
// ordered call, from 1. So a set that takes over the board of one that was removed takes no old
// flag for its own.
#pragma once

#include <kolo/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace kolo {

/// The calls of the ordered door.
enum class ExchangeKind : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kAlltoall,
  kReduceScatter,
  kBarrier,
};
std::string_view to_string(ExchangeKind kind);

/// What a rank takes an ordered call for, in 64 bits each.
struct OrderedCall {
  std::uint64_t number = 0;  ///< which call it is; 0: none
  std::uint64_t what = 0;    ///< kind, type, operation, root and count

  /// Both in one word, so that one look tells that a peer makes the same call: mixed by bijections,
  /// two different calls give the same word once in 2⁶⁴. (Multipliers: Steele and Vigna's.)
  std::uint64_t flag() const {
    std::uint64_t mixed = (number ^ what * 0xd1342543de82ef95u) * 0xaf251af3b0f025b5u;
    mixed ^= mixed >> 32;
    return mixed * 0xd1342543de82ef95u;
  }
};
/// `count`: elements of a rank's input. Counts from 2⁴² on and roots from 2¹² on are cut off.
std::uint64_t what_of(ExchangeKind kind, DataType type, ReduceOp op, int root, std::uint64_t count);
/// "allreduce of 8 float32 by sum", "broadcast of 2 int64 from rank 1", "barrier".
std::string to_text(std::uint64_t what);

inline constexpr std::size_t kCacheLine = 64;

struct alignas(kCacheLine) Board {
  /// The largest input of an exchange, bytes.
  static constexpr std::size_t kLargest = 64 << 10;

  /// A flag with what fits beside it on its cache line.
  struct alignas(kCacheLine) Line {
    std::atomic<std::uint64_t> flag = 0;  ///< OrderedCall::flag() of the call whose data is here
    /// The same call; while it changes, they do not fit the flag. For those who wonder.
    std::atomic<std::uint64_t> number = 0;
    std::atomic<std::uint64_t> what = 0;
    std::byte data[40] = {};
  };
  struct alignas(kCacheLine) Slot {
    Line line;
    alignas(kCacheLine) std::atomic<std::uint64_t> summed = 0;  ///< as a flag: the sum is here, too
    alignas(kCacheLine) std::byte data[kLargest];
    std::byte sum[kLargest / 2 + kCacheLine];  ///< the share of one rank of two at most
  };

  // One line, which changes seldom.
  std::atomic<bool> asleep = false;
  /// The last call that no exchange carries. The number is 0 while `what` changes.
  std::atomic<std::uint64_t> announced = 0;
  std::atomic<std::uint64_t> announced_what = 0;
  /// Whether the slots have memory, and for which set (PlaceSlots).
  std::atomic<std::uint64_t> slot_memory = 0;
  Slot slots[2];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace kolo
