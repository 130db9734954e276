// Reduce-scatter through mapped windows: the first half of allreduce_mapped. Pure; the progress
// token holder calls it through the schedule cache when an operation starts. window_pipeline.h
// describes the protocol of the pipeline slots.
//
// One block for p = 3. in[c] is this rank's piece of part c; S(r)[c] is its stripe of r's pipeline
// slot:
//
//             rank 0                      rank 1                      rank 2
//   pack      in[1], in[2] → S(0)         in[2], in[0] → S(1)         in[0], in[1] → S(2)
//   signal    → 1, 2                      → 2, 0                      → 0, 1
//   reduce    in[0]+S(1)[0]+S(2)[0]→out   S(0)[1]+in[1]+S(2)[1]→out   S(0)[2]+S(1)[2]+in[2]→out
//   signal    → 1, 2                      → 2, 0                      → 0, 1
//
// A rank copies the other ranks' parts of its input once, or not at all if they have mapped it.
#include "runtime/collectives/reduce_scatter_mapped.h"

#include "runtime/collectives/window_pipeline.h"

#include <utility>
#include <vector>

namespace kolo {

Schedule reduce_scatter_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                               const MappedOptions& options) {
  const auto own = static_cast<std::size_t>(rank);
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size));
  const std::vector<Interval> parts = end_to_end(counts);
  ScheduleBuilder builder("reduce_scatter_mapped", rank, size, sum_of(counts), counts[own]);
  const auto output_of = [&](Interval piece) {
    return output_at({piece.begin - parts[own].begin, piece.length});
  };
  if (size == 1) {
    if (counts[own] > 0)
      builder.copy(input_at(parts[own]), {output_of(parts[own])}, Scaling::kBoth, {});
    return std::move(builder).finish();
  }

  const Stripes stripes(size, options);
  std::vector<Pieces> pieces;
  std::uint64_t blocks = 0;
  for (const Interval part : parts) {
    pieces.emplace_back(part, stripes.length());
    blocks = std::max<std::uint64_t>(blocks, pieces.back().count());
  }
  WindowPipeline pipeline(builder, rank, blocks, options);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    offer_parts(pipeline, rank, stripes, pieces, block, Scaling::kPre);
    if (const Interval piece = pieces[own][block]; piece.length > 0) {
      std::vector<Operand> sources;
      std::vector<StepId> arrived;
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) {
          sources.push_back(input_at(piece));
          continue;
        }
        sources.push_back(pipeline.offered(block, peer, stripes.offset(peer, rank), piece));
        arrived.push_back(pipeline.arrival(block, peer));
      }
      const Operand destination = output_of(piece);
      const StepId reduced = builder.reduce(sources, {&destination, 1}, Scaling::kBoth, arrived);
      for (int k = 1; k < size; ++k) pipeline.has_read(block, (rank + k) % size, reduced);
    }
    pipeline.close(block);
  }
  return std::move(builder).finish();
}

}  // namespace kolo
