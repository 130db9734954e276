// Binomial broadcast. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Thakur, Rabenseifner & Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 19 (2005), §4.2. The number of ranks that have the tensor doubles
// each round.
//
// p = 6, with virtual ranks counted from the root; time goes down:
//
//   d = 4    0 → 4
//   d = 2    0 → 2
//   d = 1    0 → 1    2 → 3    4 → 5
//
// The parent of a rank is its number without the lowest bit. Its children are its number plus each
// smaller power of two. It sends to the farthest child first, because that subtree is the largest.
// p−1 messages of count elements are sent in all. The root sends ⌈log₂ p⌉ of them and also copies
// to its own kOutput.
#include "runtime/collectives/broadcast_binomial.h"

#include "runtime/base/check.h"
#include "runtime/collectives/pipeline.h"

#include <bit>
#include <utility>

namespace kolo {

Schedule broadcast_binomial(int rank, int size, int root, std::uint64_t count) {
  KOLO_CHECK(root >= 0 && root < size);
  ScheduleBuilder builder("broadcast_binomial", rank, size, count);
  if (count == 0) return std::move(builder).finish();

  const Interval all{0, count};
  const int from_root = (rank - root + size) % size;
  const auto rank_at = [&](int virtual_rank) { return (virtual_rank + root) % size; };
  // At most one message passes between two ranks, so all messages have the same tag.
  StepId ready = ScheduleBuilder::kNoStep;
  auto reach = std::bit_ceil(static_cast<unsigned>(size));  // how far this rank's subtree goes
  if (from_root > 0) {
    reach = 1U << std::countr_zero(static_cast<unsigned>(from_root));
    ready = builder.receive(rank_at(from_root - static_cast<int>(reach)), 0, output_at(all), {});
  }
  const Operand source = from_root == 0 ? input_at(all) : output_at(all);
  for (int distance = static_cast<int>(reach) / 2; distance > 0; distance /= 2)
    if (from_root + distance < size)
      builder.send(rank_at(from_root + distance), 0, source, {ready});
  if (from_root == 0) builder.copy(input_at(all), {output_at(all)}, Scaling::kNone, {});
  return std::move(builder).finish();
}

}  // namespace kolo
