// ElasticSampler: this rank's share of what is left of an epoch, for worlds that change within one.
// Each batch of all ranks together is the next stretch of a permutation that all share, so what was
// got is always its beginning, and the rest is dealt out to the ranks that there are now: no
// element is lost and none comes twice, whatever the numbers of ranks. (After Horovod's
// ElasticSampler.)
//
//   kolo::ElasticSampler sampler(data.size());
//   … the world has changed: init() again, then …
//   sampler.sync();
//   for (auto& batch : *loader) …  // the rest of the epoch
//
// Nothing is padded: with a last stretch of fewer elements than ranks, some get none. Let gradients
// count by samples (DistributedOptimizerOptions::weigh_by_samples), or use Join. Otherwise as
// DistributedSampler; with workers read by kolo::data_loader, for LibTorch's loader asks for
// batches ahead, which would count as got. Used by the training loop's thread.
#pragma once

#include <kolo/torch/rank_sampler.h>

namespace kolo {

struct ElasticSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;        ///< the same on every rank
  std::optional<int> rank = {};  ///< default: kolo::rank(), asked anew at each reset()
  std::optional<int> size = {};  ///< default: kolo::size(), likewise
};

class KOLO_API ElasticSampler : public RankSampler {
 public:
  explicit ElasticSampler(std::size_t data_size, const ElasticSamplerOptions& options = {});

  /// Elements of the epoch that no rank has got yet, by how far this rank is.
  std::size_t remaining() const;

  /// The batch that was got last has not been trained on, because its step failed: it counts as not
  /// got. Before sync(), where the root's step failed.
  void undo_last_batch();

  /// Collective over the present world. All ranks, also those that are new, go on where the root
  /// is, whose weights they take over, too; the next reset() deals out the rest. An epoch that had
  /// ended gives an empty pass, until set_epoch() chooses another. Throws kMismatch on all ranks,
  /// with both values, if a rank's data size, seed or shuffle is other than the root's.
  void sync(int root = 0);

  // load() does the same with a state that was saved, on whatever rank.
};

}  // namespace kolo
