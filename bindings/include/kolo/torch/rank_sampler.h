// RankSampler: what DistributedSampler, DistributedEvalSampler and ElasticSampler have in common. A
// permutation that all ranks share is dealt out, element i to rank i mod size. Used by the training
// loop and the data loader, by one thread at a time.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace kolo {

/// What the samplers set; their own options say it for users.
struct RankSamplerOptions {
  const char* called = "";  ///< the sampler's name in error messages
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool drop_last = false;
  bool pad = false;
  /// What is left of an epoch is dealt out anew at each reset(), to the ranks that there are then.
  bool elastic = false;
  std::size_t global_batch = 0;
  std::optional<int> rank = {};
  std::optional<int> size = {};
};

/// A handle: copies share their state, so set_epoch() on the original reaches the copy that
/// make_data_loader() took.
class KOLO_API RankSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Another permutation for each epoch; takes effect at the next reset(), which the data loader
  /// calls at begin().
  void set_epoch(std::size_t epoch);
  std::size_t epoch() const;
  /// Whether the epoch was chosen since the last reset(): by set_epoch(), load(), or as epoch 0 of
  /// a new sampler. A loader that counts epochs itself goes on to the next one where it was not.
  bool epoch_is_chosen() const;
  /// Elements of all shares together, padding included.
  std::size_t total_size() const;
  /// Elements of this rank's share of an epoch; of what was left of it, for an ElasticSampler.
  std::size_t num_samples() const;
  /// Batches of this rank's share of an epoch; a global batch overrules the size asked for.
  /// Throws kInvalidArgument for a size of 0.
  std::size_t num_batches(std::size_t batch_size, bool drop_last) const;
  /// The same of the pass that reset() began, which may be the rest of an epoch.
  std::size_t num_batches_of_pass(std::size_t batch_size, bool drop_last) const;
  /// As DistributedSamplerOptions::global_batch; 0 where there is none.
  std::size_t global_batch() const;
  /// Global batches of an epoch, of which this rank may have one share less; 0 where there are
  /// none.
  std::size_t num_global_batches() const;

  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// The loop has got nothing of the pass that reset() began: the next reset() begins it again,
  /// unless set_epoch() chooses another epoch.
  void undo_reset();
  /// With a global batch this rank's share of the next one, whatever `batch_size` is; above the
  /// smallest share of a full one kInvalidArgument, for a loader with drop_last would leave out
  /// every batch: leave it at 1.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// A loader that asks for batches ahead of the training loop tells here how many of the epoch's
  /// batches the loop has got; more than next() gave: the pass is over, and the loader has dropped
  /// those that the loop has not got. Without it, every batch that next() gave counts as got.
  /// kolo::data_loader tells it; LibTorch's loader does not, and with workers asks ahead: save() in
  /// the middle of an epoch is then too far on, and gather_for_metrics() takes another batch for
  /// the last one.
  void set_received(std::size_t batches);
  /// Elements of the batch that the training loop has got last; 0 before the first.
  std::size_t last_batch_size() const;
  /// How many of them, at its end, are padding: elements that another rank has, too. 0 or 1.
  std::size_t last_batch_padding() const;

  /// The epoch and how much of it all ranks together have got, taken from this rank's part: the
  /// ranks are at the same batch. So a run may go on with another number of ranks.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// The next reset() goes on where save() was, unless set_epoch() has chosen another epoch. Of
  /// an epoch that was at its end nothing is left: that pass is empty. Where the new number of
  /// ranks does not divide what was got, fewer elements than ranks come twice. Throws kMismatch
  /// when the rest of an epoch is of other data: the seed, the shuffle or the number of elements is
  /// another.
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  /// Throws kInvalidArgument for a rank that does not exist or a global batch below the ranks.
  RankSampler(std::size_t data_size, const RankSamplerOptions& options);
  /// How many batches the training loop has got of this pass.
  std::size_t batches_received() const;
  /// Elements of the epoch that ranks have got, all together, by what this rank has.
  std::size_t position() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace kolo
