// Dissemination barrier. Pure; the progress token holder calls it through the schedule cache when
// an operation starts. Idea: Hensgen, Finkel & Manber, "Two algorithms for barrier
// synchronization", Int. J. of Parallel Programming 17 (1988).
//
// Steps of rank 0 for p = 5; the other ranks do likewise:
//
//   k=0  signal 1   wait 4         now it knows of            4 0
//   k=1  signal 2   wait 3         … and of what 3 knew:  2 3 4 0
//   k=2  signal 4   wait 1         … and of what 1 knew:  all
//
// A rank sends ⌈log₂ p⌉ signals and waits for as many; no elements are sent. Each signal depends on
// the signal and the wait before it, and so on all earlier ones.
#include "runtime/collectives/barrier_dissemination.h"

#include <utility>

namespace kolo {

Schedule barrier_dissemination(int rank, int size) {
  ScheduleBuilder builder("barrier_dissemination", rank, size, 0);
  StepId told = ScheduleBuilder::kNoStep;
  StepId heard = ScheduleBuilder::kNoStep;
  std::uint32_t round = 0;
  for (std::int64_t distance = 1; distance < size; distance *= 2, ++round) {
    const auto to = static_cast<int>((rank + distance) % size);
    const auto from = static_cast<int>((rank + size - distance) % size);
    told = builder.signal(to, round, {told, heard});
    heard = builder.wait(from, round, {});
  }
  return std::move(builder).finish();
}

}  // namespace kolo
