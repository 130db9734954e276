// Allgather and broadcast through mapped windows. Pure; the progress token holder calls it through
// the schedule cache when an operation starts. Idea: Graham et al., "Cheetah: a framework for
// scalable hierarchical collective operations", CCGrid 2011. The reader copies (a "pull"), so an
// element passes through one pipeline slot, however many ranks read it.
//
// One block for p = 3. in[r] and out[r] are rank r's part of the block, S(r) is its pipeline slot
// (window_pipeline.h).
//
//             rank 0                    rank 1                    rank 2
//   pack      in → S(0)                 in → S(1)                 in → S(2)
//   signal    → 1, 2                    → 0, 2                    → 0, 1
//   read      S(1), S(2) → out[1], [2]  S(2), S(0) → out[2], [0]  S(0), S(1) → out[0], [1]
//   signal    → 1, 2                    → 0, 2                    → 0, 1
//
// A broadcast works like this with one part, the root's. A rank copies its own part twice, or once
// if all other ranks have mapped its input. It copies each other part once. After it has packed a
// block, it copies the same block to its own output, while the block is in its caches.
#include "runtime/collectives/allgather_mapped.h"

#include "runtime/collectives/window_pipeline.h"

#include <string>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// inputs[r] is rank r's part in its own input, outputs[r] the same part in every output.
Schedule to_all(std::string algorithm, int rank, std::span<const Interval> inputs,
                std::span<const Interval> outputs, std::uint64_t input_elements,
                std::uint64_t output_elements, const MappedOptions& options) {
  const auto size = static_cast<int>(inputs.size());
  ScheduleBuilder builder(std::move(algorithm), rank, size, input_elements, output_elements);
  const auto own = static_cast<std::size_t>(rank);
  if (size == 1) {
    if (inputs[own].length > 0)
      builder.copy(input_at(inputs[own]), {output_at(outputs[own])}, Scaling::kNone, {});
    return std::move(builder).finish();
  }

  std::vector<Pieces> pieces;
  std::uint64_t blocks = 0;
  for (const Interval part : inputs) {
    pieces.emplace_back(part, options.block_elements);
    blocks = std::max<std::uint64_t>(blocks, pieces.back().count());
  }
  // Start with the next rank, so that not all ranks read from the same rank first.
  std::vector<int> others;
  for (int k = 1; k < size; ++k) others.push_back((rank + k) % size);

  const auto in_output = [&](std::size_t owner, Interval piece) {
    return output_at({outputs[owner].begin + piece.begin - inputs[owner].begin, piece.length});
  };
  WindowPipeline pipeline(builder, rank, blocks, options);
  StepId copied = ScheduleBuilder::kNoStep;  // what the next block's packing comes after
  for (std::uint64_t block = 0; block < blocks; ++block) {
    if (const Interval piece = pieces[own][block]; piece.length > 0) {
      const StepId packed = pipeline.offer(block, 0, piece, Scaling::kNone, others, copied);
      const StepId copy =
          builder.copy(input_at(piece), {in_output(own, piece)}, Scaling::kNone, {packed});
      if (!options.direct) copied = copy;
    }
    for (const int peer : others) {
      const auto owner = static_cast<std::size_t>(peer);
      const Interval piece = pieces[owner][block];
      if (piece.length == 0) continue;
      pipeline.has_read(
          block, peer,
          builder.copy(pipeline.offered(block, peer, 0, piece), {in_output(owner, piece)},
                       Scaling::kNone, {pipeline.arrival(block, peer)}));
    }
    pipeline.close(block);
  }
  return std::move(builder).finish();
}

}  // namespace

Schedule allgather_mapped(int rank, int size, std::span<const std::uint64_t> counts,
                          const MappedOptions& options) {
  KOLO_CHECK(counts.size() == static_cast<std::size_t>(size));
  std::vector<Interval> inputs;
  for (const std::uint64_t count : counts) inputs.push_back({0, count});
  return to_all("allgather_mapped", rank, inputs, end_to_end(counts),
                counts[static_cast<std::size_t>(rank)], sum_of(counts), options);
}

Schedule broadcast_mapped(int rank, int size, int root, std::uint64_t count,
                          const MappedOptions& options) {
  std::vector<Interval> parts(static_cast<std::size_t>(size));
  parts[static_cast<std::size_t>(root)] = {0, count};
  return to_all("broadcast_mapped", rank, parts, parts, count, count, options);
}

}  // namespace kolo
