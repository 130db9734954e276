// Bruck's alltoall. Called through the schedule cache when an operation starts, by the holder of
// the progress token; pure. Idea: Bruck et al., "Efficient algorithms for all-to-all communications
// in multiport message-passing systems", IEEE TPDS 8 (1997): a part that must go d ranks further
// goes 2ᵇ ranks in round b for each bit b of d, together with all parts that do.
//
// p = 4; i→j is what rank i sends to rank j. In round b a rank packs what has bit b in its
// distance:
//
//           rank 0                                     rank 1
//           copy 0→0 out                               copy 1→1 out
//   b=0     0→1, 0→3 to rank 1; gets 3→0, 3→2          1→2, 1→0 to rank 2; gets 0→1, 0→3
//           copy 3→0 out                               copy 0→1 out
//   b=1     0→2, 3→2 to rank 2; gets 2→0, 1→0 from 2   1→3, 0→3 to rank 3; gets 3→1, 2→1 from 3 …
//           copy what is its own out
//
// At most ⌈log₂ p⌉ messages each way in place of p−1. All ranks know the matrix, so each knows what
// is where, however uneven the parts are; a round in which nothing goes from a rank to another has
// no message. Nothing is pipelined, and each part is copied once a round and once more at the end.
#include "runtime/collectives/alltoall_bruck.h"

#include "runtime/collectives/alltoall_parts.h"

#include <array>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Where a part is that goes `distance` ranks in all, and what must have happened before.
struct Waiting {
  Operand place;
  StepId arrived = ScheduleBuilder::kNoStep;
};

}  // namespace

Schedule alltoall_bruck(int rank, int size, std::span<const std::uint64_t> matrix) {
  const auto ranks = static_cast<std::size_t>(size);
  const AlltoallParts parts(rank, size, matrix);
  const std::size_t own = parts.own;
  const auto length = [&](std::size_t from, std::size_t distance) {
    return matrix[from % ranks * ranks + (from + distance) % ranks];
  };
  ScheduleBuilder builder = parts.begin("alltoall_bruck");

  parts.copy_own(builder);
  std::vector<Waiting> waiting(ranks);  // by distance
  for (std::size_t d = 1; d < ranks; ++d)
    waiting[d].place = input_at(parts.outgoing[(own + d) % ranks]);

  std::uint64_t used = 0;  // of the scratch
  std::uint32_t tag = 0;
  for (std::size_t bit = 1; bit < ranks; bit *= 2, ++tag) {
    // Before this round, what goes `d` in all is d mod `bit` ranks behind where it began.
    const auto origin = [&](std::size_t at, std::size_t d) { return at + ranks - d % bit; };
    const std::size_t from = (own + ranks - bit) % ranks;
    const std::uint64_t send_begin = used;
    std::vector<StepId> packed;
    for (std::size_t d = bit; d < ranks; ++d) {
      if ((d & bit) == 0 || waiting[d].place.length == 0) continue;
      const Operand space{Space::kScratch, -1, used, waiting[d].place.length};
      packed.push_back(
          builder.copy(waiting[d].place, {space}, Scaling::kNone, {waiting[d].arrived}));
      used += space.length;
    }
    if (used > send_begin)
      builder.send(static_cast<int>((own + bit) % ranks), tag,
                   {Space::kScratch, -1, send_begin, used - send_begin}, {builder.join(packed)});

    const std::uint64_t receive_begin = used;
    for (std::size_t d = bit; d < ranks; ++d) {
      if ((d & bit) == 0) continue;
      waiting[d].place = {Space::kScratch, -1, used, length(origin(from, d), d)};
      used += waiting[d].place.length;
    }
    if (used == receive_begin) continue;
    const StepId received =
        builder.receive(static_cast<int>(from), tag,
                        {Space::kScratch, -1, receive_begin, used - receive_begin}, {});
    for (std::size_t d = bit; d < ranks; ++d) {
      if ((d & bit) == 0) continue;
      waiting[d].arrived = received;
      if (d >= 2 * bit || waiting[d].place.length == 0) continue;
      const std::size_t sender = (own + ranks - d) % ranks;
      builder.copy(waiting[d].place, {output_at(parts.incoming[sender])}, Scaling::kNone,
                   {received});
    }
  }
  builder.need_scratch(used);
  return std::move(builder).finish();
}

}  // namespace kolo
