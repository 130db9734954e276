// DistributedSampler: this rank's share of a data set, distributed like
// torch.utils.data.DistributedSampler does it. One thread at a time.
//
//   kolo::DistributedSampler sampler(data.size().value());
//   auto loader = kolo::data_loader(data, sampler, {.batch_size = 64, .workers = 2});
//   sampler.set_epoch(epoch);  // another permutation for each epoch
//   for (auto& batch : loader) train(batch);
//
// - All ranks share a permutation, which is padded to equal shares. Rank r takes every size-th
//   element from element r on.
// - So the b-th batches of all ranks together are one contiguous part of the permutation, whatever
//   the number of ranks.
// - With workers, use kolo::data_loader. LibTorch's loader does not report which batches the loop
//   has received. save() in the middle of an epoch and gather_for_metrics() need this.
#pragma once

#include <kolo/torch/rank_sampler.h>

namespace kolo {

struct DistributedSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  ///< equal on every rank
  /// Drops the end of the data that does not fill all shares. Otherwise shares are padded with
  /// elements from the start of the permutation.
  bool drop_last = false;
  /// Distributes each group of this many elements of the permutation separately; 0: off. So a step
  /// trains on the same elements for any number of ranks, even if they do not divide the group.
  /// - next() returns this rank's share of the next global batch. Shares differ by at most one
  ///   element, and nothing is padded.
  /// - drop_last drops a last, smaller batch.
  /// - Leave the loader's batch_size at 1, its default, and its drop_last off. next() throws
  ///   kInvalidArgument if asked for more than a share.
  /// - If the last batch has fewer elements than there are ranks and is not dropped, some ranks
  ///   make one step less. Rank 0 then warns. Set drop_last, or use Join. Or let a rank whose loop
  ///   made fewer than num_global_batches() steps make an empty one: zero_grad(),
  ///   set_sample_count(0) with weigh_by_samples, step().
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
