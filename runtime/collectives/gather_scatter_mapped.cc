// Gather and scatter through mapped windows. Pure; the progress token holder calls it through the
// schedule cache when an operation starts. window_pipeline.h describes the protocol of the pipeline
// slots.
//
// One block for p = 3 and root 0. S(r) is rank r's pipeline slot, S(0)[r] its stripe for rank r:
//
//   gather    rank 0 (root)               rank 1           rank 2
//   pack                                  in → S(1)        in → S(2)
//   signal                                → 0              → 0
//   read      S(1), S(2) → out[1], [2]
//   signal    → 1, 2
//
//   scatter   rank 0 (root)               rank 1           rank 2
//   pack      in[1], in[2] → S(0)[1], [2]
//   signal    → 1, 2
//   read                                  S(0)[1] → out    S(0)[2] → out
//   signal                                → 0              → 0
//
// A part is copied twice, or once if its owner's input is mapped; the root's own part is copied
// once, and stays where it is in place.
#include "runtime/collectives/gather_scatter_mapped.h"

#include "runtime/collectives/window_pipeline.h"

#include <utility>
#include <vector>

namespace kolo {
namespace {

void check_arguments(int size, int root, std::span<const std::uint64_t> counts) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size) && root >= 0 && root < size);
}

/// Blocks of pieces of at most `largest` elements, for the longest part of a rank but the root.
std::uint64_t blocks_of(std::span<const std::uint64_t> counts, int root, std::uint64_t largest) {
  std::uint64_t most = 0;
  for (std::size_t r = 0; r < counts.size(); ++r)
    if (r != static_cast<std::size_t>(root)) most = std::max(most, counts[r]);
  return Pieces({0, most}, largest).count();
}

void copy_own(ScheduleBuilder& builder, Interval input, Interval output) {
  if (input.length > 0) builder.copy(input_at(input), {output_at(output)}, Scaling::kNone, {});
}

/// What a rank but the root does in a gather.
void offer_part(WindowPipeline& pipeline, int root, const Pieces& pieces, std::uint64_t blocks) {
  for (std::uint64_t block = 0; block < blocks; ++block) {
    if (const Interval piece = pieces[block]; piece.length > 0)
      pipeline.offer(block, 0, piece, Scaling::kNone, {&root, 1});
    pipeline.close(block);
  }
}

}  // namespace

Schedule gather_mapped(int rank, int size, int root, std::span<const std::uint64_t> counts,
                       const MappedOptions& options) {
  check_arguments(size, root, counts);
  const auto own = static_cast<std::size_t>(rank);
  const bool is_root = rank == root;
  const std::vector<Interval> parts = end_to_end(counts);
  ScheduleBuilder builder("gather_mapped", rank, size, counts[own], is_root ? sum_of(counts) : 0);
  if (is_root) copy_own(builder, {0, counts[own]}, parts[own]);
  if (size == 1) return std::move(builder).finish();

  std::vector<Pieces> pieces;
  for (const Interval part : parts)
    pieces.emplace_back(Interval{0, part.length}, options.block_elements);
  const std::uint64_t blocks = blocks_of(counts, root, options.block_elements);
  WindowPipeline pipeline(builder, rank, blocks, options);
  if (!is_root) {
    offer_part(pipeline, root, pieces[own], blocks);
    return std::move(builder).finish();
  }
  for (std::uint64_t block = 0; block < blocks; ++block) {
    for (int k = 1; k < size; ++k) {
      const int from = (root + k) % size;
      const auto owner = static_cast<std::size_t>(from);
      const Interval piece = pieces[owner][block];
      if (piece.length == 0) continue;
      pipeline.has_read(block, from,
                        builder.copy(pipeline.offered(block, from, 0, piece),
                                     {output_at({parts[owner].begin + piece.begin, piece.length})},
                                     Scaling::kNone, {pipeline.arrival(block, from)}));
    }
  }
  return std::move(builder).finish();
}

Schedule scatter_mapped(int rank, int size, int root, std::span<const std::uint64_t> counts,
                        const MappedOptions& options) {
  check_arguments(size, root, counts);
  const auto own = static_cast<std::size_t>(rank);
  const bool is_root = rank == root;
  const std::vector<Interval> parts = end_to_end(counts);
  ScheduleBuilder builder("scatter_mapped", rank, size, is_root ? sum_of(counts) : 0, counts[own]);
  if (is_root) copy_own(builder, parts[own], {0, counts[own]});
  if (size == 1) return std::move(builder).finish();

  const Stripes stripes(size, options);
  std::vector<Pieces> pieces;
  for (const Interval part : parts) pieces.emplace_back(part, stripes.length());
  const std::uint64_t blocks = blocks_of(counts, root, stripes.length());
  WindowPipeline pipeline(builder, rank, blocks, options);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    if (is_root) {
      offer_parts(pipeline, rank, stripes, pieces, block, Scaling::kNone);
      pipeline.close(block);
      continue;
    }
    const Interval piece = pieces[own][block];
    if (piece.length == 0) break;
    const Interval destination{piece.begin - parts[own].begin, piece.length};
    pipeline.has_read(
        block, root,
        builder.copy(pipeline.offered(block, root, stripes.offset(root, rank), piece),
                     {output_at(destination)}, Scaling::kNone, {pipeline.arrival(block, root)}));
  }
  return std::move(builder).finish();
}

}  // namespace kolo
