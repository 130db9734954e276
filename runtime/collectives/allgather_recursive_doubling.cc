// Recursive doubling allgather. Pure; the progress token holder calls it through the schedule cache
// when an operation starts. Idea: Thakur, Rabenseifner & Gropp, "Optimization of collective
// communication operations in MPICH", IJHPCA 19 (2005), §4.1.
//
// p = 5 makes four members; rank 1 is folded into rank 0 (fold.h). What a rank holds after each
// round:
//
//                 rank 0          rank 1          rank 2          rank 3          rank 4
//   fold          [0 1]           → 0             [2]             [3]             [4]
//   d = 1         [0 1 2] ↔ 2     ·               [0 1 2] ↔ 0     [3 4]   ↔ 4     [3 4]   ↔ 3
//   d = 2         all     ↔ 3     ·               all     ↔ 4     all     ↔ 0     all     ↔ 2
//   give back     → 1             all
//
// A member and its partner hold neighbouring ranges of ranks, so each message is one piece of the
// output, whatever the counts. A folded rank receives two messages, one before and one after its
// own part. With q the largest power of two ≤ p, a member sends log₂ q messages, and up to two more
// if a rank is folded into it; a folded rank sends one. All ranks together send (p−1) · Σ counts
// elements for every p, like the ring, because no rank receives a part twice.
#include "runtime/collectives/allgather_recursive_doubling.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/fold.h"
#include "runtime/collectives/pipeline.h"

#include <array>
#include <utility>

namespace kolo {
namespace {

constexpr std::uint32_t kFoldTag = 0, kBeforeTag = 1, kAfterTag = 2;  // within a pair

}  // namespace

Schedule allgather_recursive_doubling(int rank, int size, std::span<const std::uint64_t> counts,
                                      bool in_place) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size));
  const std::uint64_t own_count = counts[static_cast<std::size_t>(rank)];
  ScheduleBuilder builder("allgather_recursive_doubling", rank, size, own_count, sum_of(counts));
  const auto of_ranks = [&](int first, int last) {
    const std::uint64_t begin = sum_of(counts.first(static_cast<std::size_t>(first)));
    return Interval{begin, sum_of(counts.first(static_cast<std::size_t>(last))) - begin};
  };
  const auto send = [&](int peer, std::uint32_t tag, Interval part, StepId after) {
    if (part.length > 0) builder.send(peer, tag, output_at(part), {after});
  };
  const auto receive = [&](int peer, std::uint32_t tag, Interval part) {
    return part.length > 0 ? builder.receive(peer, tag, output_at(part), {})
                           : ScheduleBuilder::kNoStep;
  };

  const Fold fold(rank, size);
  const Interval own = of_ranks(rank, rank + 1);
  StepId ready = ScheduleBuilder::kNoStep;
  if (own.length > 0 && !in_place)
    ready = builder.copy(input_at({0, own_count}), {output_at(own)}, Scaling::kNone, {});
  if (fold.is_folded()) {
    send(fold.partner(), kFoldTag, own, ready);
    receive(fold.partner(), kBeforeTag, of_ranks(0, rank));
    receive(fold.partner(), kAfterTag, of_ranks(rank + 1, size));
    return std::move(builder).finish();
  }

  const auto wait_for = [&](StepId received) {
    if (received != ScheduleBuilder::kNoStep) ready = builder.join(std::array{ready, received});
  };
  if (fold.has_folded()) wait_for(receive(fold.partner(), kFoldTag, of_ranks(rank + 1, rank + 2)));
  std::uint32_t tag = 0;
  for (int distance = 1; distance < fold.members(); distance *= 2, ++tag) {
    const int mine = round_down(fold.member(), distance);  // the first member of this half
    const int others = mine ^ distance;
    const int partner = fold.rank_of(fold.member() ^ distance);
    const auto of_members = [&](int first) {
      return of_ranks(fold.rank_of(first), fold.rank_of(first + distance));
    };
    send(partner, tag, of_members(mine), ready);
    wait_for(receive(partner, tag, of_members(others)));
  }
  if (fold.has_folded()) {
    send(fold.partner(), kBeforeTag, of_ranks(0, rank + 1), ready);
    send(fold.partner(), kAfterTag, of_ranks(rank + 2, size), ready);
  }
  return std::move(builder).finish();
}

}  // namespace kolo
