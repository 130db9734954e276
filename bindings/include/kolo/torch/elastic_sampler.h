// ElasticSampler: this rank's share of the rest of an epoch, for worlds whose size changes within
// an epoch. (After Horovod's ElasticSampler.) Used by the training loop's thread.
//
//   kolo::ElasticSampler sampler(data.size().value());
//   // … the world has changed: call init() again, then …
//   sampler.sync();
//   for (auto& batch : *loader) train(batch);  // the rest of the epoch
//
// - Each batch of all ranks together is the next contiguous part of a permutation that all ranks
//   share. So the elements that were received are always its beginning, and the rest is distributed
//   over the ranks that exist now. No element is lost or comes twice, whatever the numbers of
//   ranks.
// - Nothing is padded. If the last part has fewer elements than there are ranks, some ranks get
//   none. Weigh gradients by samples (DistributedOptimizerOptions::weigh_by_samples), or use Join.
// - With workers, use kolo::data_loader. LibTorch's loader reads batches ahead, which would count
//   as received.
// - The other rules are those of DistributedSampler.
#pragma once

#include <kolo/torch/rank_sampler.h>

namespace kolo {

struct ElasticSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;        ///< equal on every rank
  std::optional<int> rank = {};  ///< default: kolo::rank(), read again at each reset()
  std::optional<int> size = {};  ///< default: kolo::size(), likewise
};

class KOLO_API ElasticSampler : public RankSampler {
 public:
  explicit ElasticSampler(std::size_t data_size, const ElasticSamplerOptions& options = {});

  /// Number of elements of the epoch that no rank has received yet, computed from this rank's
  /// position.
  std::size_t remaining() const;

  /// Counts the last batch as not received, because its step failed. Call it before sync(), if the
  /// root's step failed.
  void undo_last_batch();

  /// Collective over the present world. All ranks, also new ones, continue at the position of the
  /// root, from which they take the weights, too. The next reset() distributes the rest. If the
  /// epoch had ended, the next pass is empty, unless set_epoch() chooses another epoch. Throws
  /// kMismatch on all ranks, with both values, if a rank's data size, seed or shuffle differs from
  /// the root's.
  void sync(int root = 0);

  // load() does the same with a saved state, from any rank.
};

}  // namespace kolo
