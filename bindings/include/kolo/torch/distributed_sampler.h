// DistributedSampler: this rank's share of a data set, as torch.utils.data.DistributedSampler deals
// it out: a permutation that all ranks share, padded to equal shares, of which rank r takes every
// size-th element from r on. So the b-th batches of all ranks together are a stretch of the
// permutation, whatever the number of ranks. One thread at a time.
//
// With workers read by kolo::data_loader: LibTorch's loader does not tell the sampler what the loop
// has got, which save() in the middle of an epoch and gather_for_metrics() go by.
#pragma once

#include <kolo/torch/rank_sampler.h>

namespace kolo {

struct DistributedSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< the same on every rank
  /// Leaves out the end of the data that does not fill all shares, instead of padding them by
  /// elements from the start of the permutation.
  bool drop_last = false;
  /// When set, every stretch of this many elements of the permutation is dealt out for itself, so
  /// that a step trains on the same elements for any number of ranks, also where they do not divide
  /// it: next() gives this rank's share of the next global batch, shares differ by one element at
  /// most, nothing is padded. drop_last then leaves out a last, smaller batch. If that batch has
  /// fewer elements than there are ranks, and it is not left out, some ranks make one step less
  /// than the others, of which rank 0 warns: set drop_last, train within Join, or let a rank whose
  /// loop made fewer than num_global_batches() steps make an empty one (zero_grad(),
  /// set_sample_count(0) with weigh_by_samples, step()). Leave the loader's batch_size at 1, its
  /// default, and its drop_last off: asked for more than a share, next() throws kInvalidArgument.
  std::size_t global_batch = 0;
  std::optional<int> rank = {};  ///< default: kolo::rank()
  std::optional<int> size = {};  ///< default: kolo::size()
};

/// num_samples() is the same on every rank, unless global_batch is set.
class KOLO_API DistributedSampler : public RankSampler {
 public:
  explicit DistributedSampler(std::size_t data_size, const DistributedSamplerOptions& options = {});
};

}  // namespace kolo
