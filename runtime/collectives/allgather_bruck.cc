// Bruck's allgather. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", IEEE TPDS 8 (1997). The parts that a rank holds double each
// round.
//
// Steps of rank 0 for p = 5. Rank r holds the parts in the order r, r+1, …, so each message is one
// contiguous piece:
//
//              scratch of rank 0
//              [0]                                 copied in
//   d=1        [0] [1]              send [0] to 4;        get [1] from 1
//   d=2        [0] [1] [2] [3]      send [0] [1] to 3;    get [2] [3] from 2
//   d=4        [0] [1] [2] [3] [4]  send [0] to 1;        get [4] from 4
//              copied out in two pieces: from part 0 on, and what is before the own part
//
// A rank sends and receives ⌈log₂ p⌉ messages, where the ring needs p−1, and makes at most 3
// copies. All ranks together send (p−1) · Σ counts elements, like the ring. But nothing is
// pipelined, and all data passes through scratch.
#include "runtime/collectives/allgather_bruck.h"

#include "runtime/base/check.h"
#include "runtime/collectives/pipeline.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace kolo {

Schedule allgather_bruck(int rank, int size, std::span<const std::uint64_t> counts, bool in_place) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size));
  const auto own = static_cast<std::size_t>(rank);
  const auto ranks = static_cast<std::size_t>(size);
  const std::uint64_t total = sum_of(counts);
  ScheduleBuilder builder("allgather_bruck", rank, size, counts[own], total);

  // begins[k] is where the part of rank + k begins, in this rank's order.
  std::vector<std::uint64_t> begins = {0};
  for (std::size_t k = 0; k < ranks; ++k)
    begins.push_back(begins.back() + counts[(own + k) % ranks]);
  const auto held = [&](std::size_t first, std::size_t last) {
    return Operand{Space::kScratch, -1, begins[first], begins[last] - begins[first]};
  };
  const std::uint64_t before_own = sum_of(counts.first(own));
  builder.need_scratch(total);

  StepId ready = ScheduleBuilder::kNoStep;
  if (counts[own] > 0)
    ready =
        builder.copy(in_place ? output_at({before_own, counts[own]}) : input_at({0, counts[own]}),
                     {held(0, 1)}, Scaling::kNone, {});
  std::uint32_t tag = 0;
  for (std::size_t distance = 1; distance < ranks; distance *= 2, ++tag) {
    const std::size_t parts = std::min(distance, ranks - distance);
    if (const Operand known = held(0, parts); known.length > 0)
      builder.send(static_cast<int>((own + ranks - distance) % ranks), tag, known, {ready});
    if (const Operand news = held(distance, distance + parts); news.length > 0) {
      const StepId received =
          builder.receive(static_cast<int>((own + distance) % ranks), tag, news, {});
      ready = builder.join(std::array{ready, received});
    }
  }

  const std::size_t wrap = ranks - own;  // index of part 0
  if (begins[wrap] > 0)
    builder.copy(held(0, wrap), {output_at({before_own, begins[wrap]})}, Scaling::kNone, {ready});
  if (before_own > 0)
    builder.copy(held(wrap, ranks), {output_at({0, before_own})}, Scaling::kNone, {ready});
  return std::move(builder).finish();
}

}  // namespace kolo
