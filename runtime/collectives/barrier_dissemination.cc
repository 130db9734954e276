// Dissemination barrier. Called through the schedule cache when an operation starts, by the holder
// of the progress token; pure. Idea: Hensgen, Finkel & Manber, "Two algorithms for barrier
// synchronization", Int. J. of Parallel Programming 17 (1988).
//
// p = 5, what rank 0 does; the others alike:
//
//   k=0  notify 1   await 4        now it knows of      4 0
//   k=1  notify 2   await 3        … and of what 3 knew:  2 3 4 0
//   k=2  notify 4   await 1        … and of what 1 knew:  all
//
// Steps a rank: ⌈log₂ p⌉ notices and as many awaits; no elements. A notice waits for the notice
// before it, and so for all that came before that one.
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
    told = builder.notify(to, round, {told, heard});
    heard = builder.await(from, round, {});
  }
  return std::move(builder).finish();
}

}  // namespace kolo
