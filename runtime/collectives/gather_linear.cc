// Linear gather. Pure; the progress token holder calls it through the schedule cache when an
// operation starts.
//
// p = 3, root 0; [c,i] is chunk i of rank c's part:
//
//   rank 0 (root)            rank 1         rank 2
//   get [1,0]  get [2,0]     send [1,0]     send [2,0]
//   get [1,1]  get [2,1]     send [1,1]     send [2,1]
//   copy [0]                                               unless in place
//
// One message per chunk. All ranks together send Σ counts − counts[root] elements, each once.
//
// Why no tree: the root's link must carry every byte in any case and is the bottleneck. A binomial
// tree (Thakur et al. 2005, §4.2) saves only latency: log₂ p instead of p−1 small messages. Its
// inner ranks would move up to half of all bytes again and need memory for them. The root receives
// the ranks' chunks in turn, so all its connections stay busy.
#include "runtime/collectives/gather_linear.h"

#include "runtime/base/check.h"

#include <utility>
#include <vector>

namespace kolo {

Schedule gather_linear(int rank, int size, int root, std::span<const std::uint64_t> counts,
                       const GatherOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size) && root >= 0 && root < size);
  const auto own = static_cast<std::size_t>(rank);
  ScheduleBuilder builder("gather_linear", rank, size, counts[own],
                          rank == root ? sum_of(counts) : 0);
  MessageWindow window(options.pipeline.chunks_in_flight);
  if (rank != root) {
    const Pieces pieces({0, counts[own]}, options.pipeline.chunk_elements);
    for (std::uint32_t i = 0; i < pieces.count(); ++i)
      window.push(builder.send(root, i, input_at(pieces[i]), {window.gate()}));
    return std::move(builder).finish();
  }

  const std::vector<Interval> parts = end_to_end(counts);
  for_each_in_turn(root, parts, options.pipeline.chunk_elements,
                   [&](int from, std::uint32_t i, Interval piece) {
                     window.push(builder.receive(from, i, output_at(piece), {window.gate()}));
                   });
  if (counts[own] > 0 && !options.in_place)
    builder.copy(input_at({0, counts[own]}), {output_at(parts[own])}, Scaling::kNone, {});
  return std::move(builder).finish();
}

}  // namespace kolo
