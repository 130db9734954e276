// Bruck's alltoall. Pure; the progress token holder calls it through the schedule cache when an
// operation starts. Idea: Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", IEEE TPDS 8 (1997). A part that must travel d ranks moves 2ᵇ
// ranks in round b for each bit b of d, in one message with all parts that share this bit.
//
// p = 4; i→j is the part from rank i to rank j. In round b a rank packs the parts whose distance
// has bit b:
//
//           rank 0                                     rank 1
//           copy 0→0 out                               copy 1→1 out
//   b=0     0→1, 0→3 to rank 1; gets 3→0, 3→2          1→2, 1→0 to rank 2; gets 0→1, 0→3
//           copy 3→0 out                               copy 0→1 out
//   b=1     0→2, 3→2 to rank 2; gets 2→0, 1→0 from 2   1→3, 0→3 to rank 3; gets 3→1, 2→1 from 3 …
//           copy what is its own out
//
// A rank sends and receives at most ⌈log₂ p⌉ messages instead of p−1. All ranks know the matrix, so
// each knows where every part is, however uneven the parts are. If no part goes from a rank to
// another in a round, no message is sent. Nothing is pipelined. Each part is copied once per round
// and once more at the end.
#include "runtime/collectives/alltoall_bruck.h"

#include "runtime/collectives/alltoall_parts.h"

#include <array>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Memory of a part that travels `distance` ranks in all, and the step after which it is there.
struct Waiting {
  Operand memory;
  StepId arrived = ScheduleBuilder::kNoStep;
};

/// By distance: the parts for the other ranks, still in the input.
std::vector<Waiting> waiting_in_input(const AlltoallParts& parts) {
  const std::size_t ranks = parts.outgoing.size();
  std::vector<Waiting> waiting(ranks);
  for (std::size_t d = 1; d < ranks; ++d)
    waiting[d].memory = input_at(parts.outgoing[(parts.own + d) % ranks]);
  return waiting;
}

/// The distances of the parts that move in the round of `bit`.
std::vector<std::size_t> moving_in(std::size_t bit, std::size_t ranks) {
  std::vector<std::size_t> distances;
  for (std::size_t d = bit; d < ranks; ++d)
    if ((d & bit) != 0) distances.push_back(d);
  return distances;
}

}  // namespace

Schedule alltoall_bruck(int rank, int size, std::span<const std::uint64_t> counts) {
  const PartMatrix matrix(size, counts);
  const std::size_t ranks = matrix.ranks;
  const AlltoallParts parts(rank, matrix);
  const std::size_t own = parts.own;
  const auto length = [&](std::size_t from, std::size_t distance) {
    return matrix(from % ranks, (from + distance) % ranks);
  };
  ScheduleBuilder builder = parts.begin("alltoall_bruck");

  parts.copy_own(builder);
  std::vector<Waiting> waiting = waiting_in_input(parts);
  std::uint64_t used = 0;  // elements of the scratch
  std::uint32_t tag = 0;
  for (std::size_t bit = 1; bit < ranks; bit *= 2, ++tag) {
    // Before this round, the part with distance `d` is (d mod `bit`) ranks behind its origin.
    const auto origin = [&](std::size_t at, std::size_t d) { return at + ranks - d % bit; };
    const std::size_t from = (own + ranks - bit) % ranks;
    const std::vector<std::size_t> moving = moving_in(bit, ranks);
    const std::uint64_t send_begin = used;
    std::vector<StepId> packed;
    for (const std::size_t d : moving) {
      if (waiting[d].memory.length == 0) continue;
      const Operand space{Space::kScratch, -1, used, waiting[d].memory.length};
      packed.push_back(
          builder.copy(waiting[d].memory, {space}, Scaling::kNone, {waiting[d].arrived}));
      used += space.length;
    }
    if (used > send_begin)
      builder.send(static_cast<int>((own + bit) % ranks), tag,
                   {Space::kScratch, -1, send_begin, used - send_begin}, {builder.join(packed)});

    const std::uint64_t receive_begin = used;
    for (const std::size_t d : moving) {
      waiting[d].memory = {Space::kScratch, -1, used, length(origin(from, d), d)};
      used += waiting[d].memory.length;
    }
    if (used == receive_begin) continue;
    const StepId received =
        builder.receive(static_cast<int>(from), tag,
                        {Space::kScratch, -1, receive_begin, used - receive_begin}, {});
    for (const std::size_t d : moving) {
      waiting[d].arrived = received;
      if (d >= 2 * bit || waiting[d].memory.length == 0) continue;
      const std::size_t sender = (own + ranks - d) % ranks;
      builder.copy(waiting[d].memory, {output_at(parts.incoming[sender])}, Scaling::kNone,
                   {received});
    }
  }
  builder.need_scratch(used);
  return std::move(builder).finish();
}

}  // namespace kolo
