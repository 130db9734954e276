// RankSampler: the common part of DistributedSampler, DistributedEvalSampler and ElasticSampler. It
// distributes a permutation that all ranks share: element i goes to rank i mod size. Used by the
// training loop and the data loader, by one thread at a time.
#pragma once

#include <kolo/export.h>
#include <torch/data/samplers/base.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace kolo {

/// Set by the three samplers. Their own options document the fields for users.
struct RankSamplerOptions {
  const char* called = "";  ///< the sampler's name in error messages
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool drop_last = false;
  bool pad = false;
  /// Each reset() distributes the rest of the epoch anew, over the ranks that exist then.
  bool elastic = false;
  std::size_t global_batch = 0;
  std::optional<int> rank = {};
  std::optional<int> size = {};
};

/// Base class of kolo's samplers; users make one of the three:
///
///   kolo::DistributedSampler sampler(data.size().value());
///   for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
///     sampler.set_epoch(epoch);
///     for (auto& batch : *loader) train(batch);  // a loader made with this sampler
///   }
///
/// It is a handle: copies share their state. So set_epoch() on the original reaches the copy in the
/// data loader.
class KOLO_API RankSampler : public torch::data::samplers::Sampler<> {
 public:
  // Without moves: a sampler that was moved into a loader is still a handle on its state.
  RankSampler(const RankSampler&) = default;
  RankSampler& operator=(const RankSampler&) = default;

  /// Chooses the permutation of this epoch. It takes effect at the next reset(), which the data
  /// loader calls in begin().
  void set_epoch(std::size_t epoch);
  std::size_t epoch() const;
  /// Whether set_epoch() or load() has chosen the epoch since the last reset(). Also true for epoch
  /// 0 of a new sampler. If it is false, a loader that counts epochs itself goes on to the next
  /// one.
  bool epoch_is_chosen() const;
  /// Number of elements of all shares together, padding included.
  std::size_t total_size() const;
  /// Number of elements of this rank's share of an epoch. For an ElasticSampler: its share of the
  /// rest of the epoch.
  std::size_t num_samples() const;
  /// Number of batches of this rank's share of an epoch. A global batch takes precedence over
  /// `batch_size`. Throws kInvalidArgument for a size of 0.
  std::size_t num_batches(std::size_t batch_size, bool drop_last) const;
  /// Like num_batches(), for the pass that reset() began, which may be the rest of an epoch.
  std::size_t num_batches_of_pass(std::size_t batch_size, bool drop_last) const;
  /// DistributedSamplerOptions::global_batch; 0 without one.
  std::size_t global_batch() const;
  /// Number of global batches of an epoch; 0 without global batches. This rank may have a share of
  /// one batch fewer.
  std::size_t num_global_batches() const;

  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// Call it if the loop received nothing of the pass that reset() began. The next reset() begins
  /// this pass again, unless set_epoch() chooses another epoch.
  void undo_reset();
  /// Returns the indices of the next batch. With a global batch it returns this rank's share of the
  /// next global batch, whatever `batch_size` is. It throws kInvalidArgument if `batch_size`
  /// exceeds the smallest share of a full global batch, because a loader with drop_last would then
  /// drop every batch. So leave `batch_size` at 1.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// A loader that reads ahead calls it to report how many of the epoch's batches the training loop
  /// has received.
  /// - A number above the batches that next() returned ends the pass: the loader has dropped the
  ///   batches that the loop did not receive.
  /// - Without this call, every batch that next() returned counts as received.
  /// - kolo::data_loader calls it. LibTorch's loader does not, and it reads ahead when it has
  ///   workers. Then save() in the middle of an epoch is too far ahead, and gather_for_metrics()
  ///   takes another batch for the last one.
  void set_received(std::size_t batches);
  /// Number of elements of the batch that the training loop received last; 0 before the first
  /// batch.
  std::size_t last_batch_size() const;
  /// Number of elements at the end of that batch that are padding, which means that another rank
  /// has them too. 0 or 1.
  std::size_t last_batch_padding() const;

  /// Number of elements of the epoch that all ranks together have received, computed from this
  /// rank's position.
  std::size_t position() const;
  /// The next reset() continues at this position of this epoch, over the ranks that exist now
  /// unless the options give them. The same on all ranks. Otherwise as load().
  void resume(std::size_t epoch, std::size_t position);

  /// Saves the epoch and the position of all ranks in it. The position is computed from this
  /// rank's, because all ranks are at the same batch. So a run may resume with another number of
  /// ranks.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// The next reset() continues where save() was, unless set_epoch() has chosen another epoch.
  /// - If the saved epoch was at its end, the next pass is empty.
  /// - If the new number of ranks does not divide the position, some elements come twice, but fewer
  ///   than there are ranks.
  /// - Throws kMismatch in the middle of an epoch if seed, shuffle or the number of elements
  ///   differ.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// Throws kInvalidArgument for a rank that does not exist, and for a global batch smaller than
  /// the number of ranks.
  RankSampler(std::size_t data_size, const RankSamplerOptions& options);
  /// Number of batches of this pass that the training loop has received.
  std::size_t batches_received() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kolo
