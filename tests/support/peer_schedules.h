// A one-pass sum over mapped scratch, as a schedule for tests of kPeer, kSignal and kWait.
// Header-only; pure.
#pragma once

#include "runtime/collectives/schedule.h"

#include <utility>

namespace kolo::test {

/// Each rank copies its input into its own scratch and signals the others. Each then sums its slice
/// from all scratches, in order of rank, and writes the result into all of them. After all signals,
/// each copies the whole result out. `size` must be 3, and `count` a multiple of 3.
inline Schedule one_pass_sum_of_three(int rank, std::uint64_t count) {
  constexpr int kSize = 3;
  ScheduleBuilder builder("one_pass_sum", rank, kSize, count);
  builder.need_scratch(count);
  const auto scratch_of = [&](int owner, std::uint64_t offset, std::uint64_t length) {
    return owner == rank ? Operand{Space::kScratch, -1, offset, length}
                         : Operand{Space::kPeer, owner, offset, length};
  };
  const int next = (rank + 1) % kSize, previous = (rank + 2) % kSize;

  const StepId packed =
      builder.copy({Space::kInput, -1, 0, count}, {scratch_of(rank, 0, count)}, Scaling::kPre, {});
  builder.signal(next, 0, {packed});
  builder.signal(previous, 1, {packed});
  const StepId next_packed = builder.wait(next, 1, {});
  const StepId previous_packed = builder.wait(previous, 0, {});

  const std::uint64_t length = count / kSize, begin = length * static_cast<std::uint64_t>(rank);
  const auto slice = [&](int owner) { return scratch_of(owner, begin, length); };
  const StepId summed =
      builder.reduce({slice(0), slice(1), slice(2)}, {slice(0), slice(1), slice(2)}, Scaling::kPost,
                     {packed, next_packed, previous_packed});
  builder.signal(next, 2, {summed});
  builder.signal(previous, 3, {summed});
  const StepId next_summed = builder.wait(next, 3, {});
  const StepId previous_summed = builder.wait(previous, 2, {});
  const StepId unpacked = builder.copy(scratch_of(rank, 0, count), {{Space::kOutput, -1, 0, count}},
                                       Scaling::kNone, {summed, next_summed, previous_summed});
  builder.join({&unpacked, 1});
  return std::move(builder).finish();
}

}  // namespace kolo::test
