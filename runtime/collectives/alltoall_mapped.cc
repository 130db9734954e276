// Alltoall through mapped windows. Called through the schedule cache when an operation starts, by
// the holder of the progress token; pure. The lanes' protocol is that of mapped_lanes.h.
//
// One block for p = 3; i→j is the piece from rank i to rank j, S(i)[j] the stripe of i's lane for
// it:
//
//             rank 0                    rank 1                    rank 2
//   pack      0→1, 0→2 → S(0)[1], [2]   1→2, 1→0 → S(1)[2], [0]   2→0, 2→1 → S(2)[0], [1]
//   read      S(1)[0], S(2)[0] → out    S(2)[1], S(0)[1] → out    S(0)[2], S(1)[2] → out
//
// Elements copied a rank: what it sends once (not at all where its input is mapped by all), what it
// gets once.
#include "runtime/collectives/alltoall_mapped.h"

#include "runtime/collectives/alltoall_parts.h"
#include "runtime/collectives/mapped_lanes.h"

#include <utility>
#include <vector>

namespace kolo {

Schedule alltoall_mapped(int rank, int size, std::span<const std::uint64_t> matrix,
                         const MappedOptions& options) {
  const auto ranks = static_cast<std::size_t>(size);
  const AlltoallParts parts(rank, size, matrix);
  std::vector<Interval> wanted;  // where in its owner's input lies what is meant for this rank
  for (std::size_t i = 0; i < ranks; ++i) {
    const auto others = matrix.subspan(i * ranks, ranks);
    wanted.push_back({sum_of(others.first(parts.own)), others[parts.own]});
  }
  ScheduleBuilder builder = parts.begin("alltoall_mapped");
  parts.copy_own(builder);
  if (size == 1) return std::move(builder).finish();

  const Stripes stripes(size, options);
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < ranks; ++i)
    for (std::size_t j = 0; j < ranks; ++j)
      if (i != j) most = std::max(most, matrix[i * ranks + j]);
  const std::uint64_t blocks = Pieces({0, most}, stripes.length()).count();
  std::vector<Pieces> out, in;
  for (std::size_t i = 0; i < ranks; ++i) {
    out.emplace_back(parts.outgoing[i], stripes.length());
    in.emplace_back(wanted[i], stripes.length());
  }
  MappedLanes lanes(builder, rank, blocks, options);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    for (int k = 1; k < size; ++k) {
      const int to = (rank + k) % size;
      const Interval piece = out[static_cast<std::size_t>(to)][block];
      if (piece.length > 0)
        lanes.offer(block, stripes.offset(rank, to), piece, Scaling::kNone, {&to, 1});
    }
    for (int k = 1; k < size; ++k) {
      const int from = (rank + size - k) % size;
      const auto owner = static_cast<std::size_t>(from);
      const Interval piece = in[owner][block];
      if (piece.length == 0) continue;
      const Interval place{parts.incoming[owner].begin + piece.begin - wanted[owner].begin,
                           piece.length};
      lanes.has_read(
          block, from,
          builder.copy(lanes.offered(block, from, stripes.offset(from, rank), piece),
                       {output_at(place)}, Scaling::kNone, {lanes.arrival(block, from)}));
    }
    lanes.close(block);
  }
  return std::move(builder).finish();
}

}  // namespace kolo
