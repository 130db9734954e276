// Alltoall through mapped windows. Pure; the progress token holder calls it through the schedule
// cache when an operation starts. window_pipeline.h describes the protocol of the pipeline slots.
//
// One block for p = 3. i→j is the piece from rank i to rank j; S(i)[j] is its stripe of i's
// pipeline slot:
//
//             rank 0                    rank 1                    rank 2
//   pack      0→1, 0→2 → S(0)[1], [2]   1→2, 1→0 → S(1)[2], [0]   2→0, 2→1 → S(2)[0], [1]
//   read      S(1)[0], S(2)[0] → out    S(2)[1], S(0)[1] → out    S(0)[2], S(1)[2] → out
//
// A rank copies what it sends once, or not at all if all other ranks have mapped its input. It
// copies what it receives once.
#include "runtime/collectives/alltoall_mapped.h"

#include "runtime/collectives/alltoall_parts.h"
#include "runtime/collectives/window_pipeline.h"

#include <utility>
#include <vector>

namespace kolo {

Schedule alltoall_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                         const MappedOptions& options) {
  const PartMatrix matrix(size, counts);
  const AlltoallParts parts(rank, matrix);
  std::vector<Interval> wanted;  // by owner: where the part for this rank lies in the owner's input
  for (std::size_t i = 0; i < matrix.ranks; ++i) wanted.push_back(matrix.in_input(i, parts.own));
  ScheduleBuilder builder = parts.begin("alltoall_mapped");
  parts.copy_own(builder);
  if (size == 1) return std::move(builder).finish();

  const Stripes stripes(size, options);
  const std::uint64_t blocks = Pieces({0, matrix.longest()}, stripes.length()).count();
  std::vector<Pieces> out, in;
  for (std::size_t i = 0; i < matrix.ranks; ++i) {
    out.emplace_back(parts.outgoing[i], stripes.length());
    in.emplace_back(wanted[i], stripes.length());
  }
  WindowPipeline pipeline(builder, rank, blocks, options);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    offer_parts(pipeline, rank, stripes, out, block, Scaling::kNone);
    for (int k = 1; k < size; ++k) {
      const int from = (rank + size - k) % size;
      const auto owner = static_cast<std::size_t>(from);
      const Interval piece = in[owner][block];
      if (piece.length == 0) continue;
      const Interval destination{parts.incoming[owner].begin + piece.begin - wanted[owner].begin,
                                 piece.length};
      pipeline.has_read(
          block, from,
          builder.copy(pipeline.offered(block, from, stripes.offset(from, rank), piece),
                       {output_at(destination)}, Scaling::kNone, {pipeline.arrival(block, from)}));
    }
    pipeline.close(block);
  }
  return std::move(builder).finish();
}

}  // namespace kolo
