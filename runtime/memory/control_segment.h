// ControlSegment: the head of each partition of a rank's window. There the rank tells which ordered
// call it makes, publishes small inputs (Exchange), and counts what it is ready for (LockedPlan).
// Only its own rank writes to it; all ranks that map the window read it.
//
// Call numbers are never reused: the upper bits hold the number of the process set, the lower bits
// count its ordered calls from 1. So a new set that takes over the control segment of a removed set
// does not mistake an old flag for its own.
#pragma once

#include "runtime/base/cache_line.h"
#include "runtime/base/ordered_call.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

namespace kolo {

/// What a rank tells of a locked plan (LockedPlan).
struct alignas(kCacheLine) PlanLine {
  /// How many lists the rank is ready for.
  std::atomic<std::uint64_t> counted = 0;
  /// How many all other hosts are ready for; of the host's leader only.
  std::atomic<std::uint64_t> elsewhere = 0;
  /// Peers must wake this rank after they publish theirs.
  std::atomic<bool> asleep = false;
};

struct alignas(kCacheLine) ControlSegment {
  /// Bytes of the largest input of an exchange.
  static constexpr std::size_t kLargest = 128 << 10;

  /// The head of a slot, beside which its first data is.
  struct Line {
    std::atomic<std::uint64_t> flag = 0;  ///< OrderedCall::flag() of the call whose data is here
    /// Number and fingerprint of the same call, for ranks that check whether they are out of step.
    /// They may not match the flag while the rank changes the line.
    std::atomic<std::uint64_t> number = 0;
    std::atomic<std::uint64_t> fingerprint = 0;
  };
  /// Bytes of the largest input that lies beside its flag, on one cache line.
  static constexpr std::size_t kLargestInLine = kCacheLine - sizeof(Line);
  /// Buffer offsets: where in its window the rank's own input and output lie, in bytes. Published
  /// beside the flag if the input does not fit there.
  struct BufferOffsets {
    static constexpr std::uint64_t kNowhere = UINT64_MAX;
    std::uint64_t input = kNowhere;   ///< set if the others may read the input there, unscaled
    std::uint64_t output = kNowhere;  ///< set if the others may write the output there
  };
  static_assert(sizeof(BufferOffsets) <= kLargestInLine);
  /// Bytes of the largest input that lies in a slot, whose lines are asked for early. Beyond it
  /// that costs more than it saves (measured: 8 and 16 KiB), so larger inputs go through the ring.
  static constexpr std::size_t kLargestInSlot = 4 << 10;
  struct alignas(kCacheLine) Slot {
    Line line;
    std::byte in_line[kLargestInLine];
    /// Flag of the call whose sum is here, too.
    alignas(kCacheLine) std::atomic<std::uint64_t> summed = 0;
    alignas(kCacheLine) std::byte data[kLargestInSlot];
    /// This rank's share of the sum. It is largest with two ranks: half of the input.
    std::byte sum[kLargest / 2 + kCacheLine];
  };

  // These share a cache line that rarely changes. `asleep`: peers must wake this rank after they
  // publish.
  std::atomic<bool> asleep = false;
  /// World's control segment only: the rank has unmapped all device memory of other ranks
  /// (DeviceUnmapBarrier).
  std::atomic<bool> maps_no_devices = false;
  /// The latest call that is too large for an exchange. The number is 0 while
  /// `announced_fingerprint` changes.
  std::atomic<std::uint64_t> announced = 0;
  std::atomic<std::uint64_t> announced_fingerprint = 0;
  /// World's control segment only: odd while the rank accesses the memory of other ranks' users
  /// (UsersMemory).
  alignas(kCacheLine) std::atomic<std::uint64_t> touches = 0;
  /// World's control segment only: the rank's users have their memory back, so other ranks must not
  /// access it any more.
  alignas(kCacheLine) std::atomic<bool> gave_back = false;
  /// World's control segment only (UsersMemory): number of tasks enqueued on the rank's device that
  /// access memory of other ranks' users, and how many of them, counted from the first, are
  /// finished without a gap.
  alignas(kCacheLine) std::atomic<std::uint64_t> device_touches = 0;
  std::atomic<std::uint64_t> device_touches_over = 0;
  PlanLine plan;
  Slot slots[2];
  /// Calls that run ahead (Exchange), in turn.
  static constexpr std::size_t kAheadLines = 96;
  /// Bytes of the largest input of such a call.
  static constexpr std::size_t kLargestAhead = 1 << 10;
  struct alignas(kCacheLine) Ahead {
    Line line;
    std::byte data[kLargestAhead];
  };
  Ahead ahead[kAheadLines];
  /// An input that does not fit behind the previous one starts at offset 0. Three times the largest
  /// input is long enough that the two never overlap.
  alignas(kCacheLine) std::byte ring[3 * kLargest];

  /// The lines of the slots, and behind them those of the calls that run ahead.
  static constexpr std::size_t kLines = 2 + kAheadLines;
  Line& line(std::size_t i) { return i < 2 ? slots[i].line : ahead[i - 2].line; }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The control segment in the memory of HostWindow::control_segment(). A window's fresh memory is
/// zero, which is a valid new control segment.
inline ControlSegment& control_segment_in(std::span<std::byte> memory) {
  return *std::launder(reinterpret_cast<ControlSegment*>(memory.data()));
}

}  // namespace kolo
