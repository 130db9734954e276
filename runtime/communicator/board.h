// Board: how a rank's window begins, for each place of the window: where its rank says what it
// calls and publishes small inputs (OneShot). Written by its rank alone, read by all that map it.
//
// Calls have numbers that never come back: the process set's in the upper bits, then that of the
// ordered call, from 1. So a set that takes over the board of one that was removed takes no old
// flag for its own.
#pragma once

#include "runtime/base/cache_line.h"
#include "runtime/base/ordered_call.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace kolo {

struct alignas(kCacheLine) Board {
  /// The largest input of an exchange, bytes.
  static constexpr std::size_t kLargest = 128 << 10;

  /// A flag with what fits beside it on its cache line.
  struct alignas(kCacheLine) Line {
    std::atomic<std::uint64_t> flag = 0;  ///< OrderedCall::flag() of the call whose data is here
    /// The same call; while it changes, they do not fit the flag. For those who wonder.
    std::atomic<std::uint64_t> number = 0;
    std::atomic<std::uint64_t> what = 0;
    std::byte data[40] = {};
  };
  /// The largest input that lies beside its flag.
  static constexpr std::size_t kLargestInLine = sizeof(Line::data);
  /// Beside the flag of an exchange that does not fit there: where the rank's own input and output
  /// lie in its window, in bytes.
  struct Places {
    static constexpr std::uint64_t kNowhere = UINT64_MAX;
    std::uint64_t input = kNowhere;   ///< if the others may read it there, unscaled
    std::uint64_t output = kNowhere;  ///< if they may write it there
  };
  static_assert(sizeof(Places) <= kLargestInLine);
  /// The largest input that lies in a slot. Larger ones go round in the ring.
  static constexpr std::size_t kLargestInSlot = 1 << 10;
  struct alignas(kCacheLine) Slot {
    Line line;
    alignas(kCacheLine) std::atomic<std::uint64_t> summed = 0;  ///< as a flag: the sum is here, too
    alignas(kCacheLine) std::byte data[kLargestInSlot];
    std::byte sum[kLargest / 2 + kCacheLine];  ///< the share of one rank of two at most
  };

  // One line, which changes seldom.
  std::atomic<bool> asleep = false;
  /// Of the world's board: its rank has no other rank's device memory mapped any more
  /// (DeviceFarewell).
  std::atomic<bool> maps_no_devices = false;
  /// The last call that no exchange carries. The number is 0 while `what` changes.
  std::atomic<std::uint64_t> announced = 0;
  std::atomic<std::uint64_t> announced_what = 0;
  /// Of the world's board: odd while its rank touches other ranks' users' memory (UsersMemory).
  alignas(kCacheLine) std::atomic<std::uint64_t> touches = 0;
  /// Of the world's board: its rank's users have their memory back, for nothing runs there any
  /// more.
  alignas(kCacheLine) std::atomic<bool> gave_back = false;
  /// Of the world's board: how many times its rank's device was given what touches other ranks'
  /// users' memory, and how many of these, the first ones, are all over (UsersMemory).
  alignas(kCacheLine) std::atomic<std::uint64_t> device_touches = 0;
  std::atomic<std::uint64_t> device_touches_over = 0;
  Slot slots[2];
  /// Three times the largest input: what does not fit behind the last one begins at 0, and does not
  /// reach it there.
  alignas(kCacheLine) std::byte ring[3 * kLargest];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The board that HostWindow::board() is the memory of: fresh memory of a window is zero, which is
/// what a new board is.
inline Board& board_in(std::span<std::byte> memory) {
  return *std::launder(reinterpret_cast<Board*>(memory.data()));
}

}  // namespace kolo
