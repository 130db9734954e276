// kolo::data_loader: LibTorch's data loader over a sampler that distributes data over ranks.
//
//   kolo::DistributedSampler sampler(data.size().value());
//   auto loader = kolo::data_loader(data, sampler, {.batch_size = 64, .workers = 2});
//   for (auto& batch : loader) train(batch);
//
// Compared to LibTorch's own loader:
// - A loop may leave a pass early and begin the next one.
// - The sampler knows which batches the training loop has received, although workers have read
//   further ahead.
//
// Used by the training loop's thread. Its workers call get_batch() of the data set, each on its own
// copy.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/pass_iterator.h>
#include <kolo/torch/rank_sampler.h>
#include <torch/data/dataloader.h>

#include <chrono>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace kolo {

struct DataLoaderOptions {
  /// Number of elements of a batch, on this rank. Leave it at 1 if the sampler has a global batch,
  /// because the sampler then gives each rank its share.
  std::size_t batch_size = 1;
  std::size_t workers = 0;   ///< threads that read; 0: the training loop's own thread reads
  bool drop_last = false;    ///< drops a last batch that is smaller than batch_size
  std::size_t prefetch = 2;  ///< batches that each worker reads ahead; not 0 with workers
  /// Deadline of one batch when there are workers. Default: none.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// Converts to LibTorch's options. Throws kInvalidArgument for options that do not fit.
KOLO_API torch::data::DataLoaderOptions loader_options(const DataLoaderOptions& options,
                                                       std::size_t global_batch);

/// A loader for `for (auto& batch : loader)`. begin() begins a pass, and ends one that was left
/// early.
template <class Dataset, class Sampler>
class DataLoader {
  using Base = torch::data::StatelessDataLoader<Dataset, Sampler>;

 public:
  using Batch = typename Base::BatchType;
  static constexpr bool kRankSampler = std::is_base_of_v<RankSampler, Sampler>;

  DataLoader(Dataset dataset, Sampler sampler, const DataLoaderOptions& options)
      : sampler_(sampler),
        options_(options),
        loader_(std::make_unique<Loader>(std::move(dataset), std::move(sampler),
                                         loader_options(options, global_batch()))) {}

  using Iterator = PassIterator<DataLoader, Batch>;

  /// If the first batch cannot be read, the next begin() begins the same pass again.
  Iterator begin() {
    loader_->restart();
    received_ = 0;
    try {
      return Iterator(this);
    } catch (...) {
      if constexpr (kRankSampler) sampler_.undo_reset();
      throw;
    }
  }
  std::default_sentinel_t end() const { return {}; }

  /// Number of batches of a whole pass on this rank. Precondition: the sampler is one of kolo's.
  std::size_t size() const {
    static_assert(kRankSampler, "only kolo's samplers know how many elements they give");
    return sampler_.num_batches(options_.batch_size, options_.drop_last);
  }
  /// Number of batches of the current pass, which may be the rest of an epoch. Precondition: as
  /// size().
  std::size_t pass_size() const {
    static_assert(kRankSampler, "only kolo's samplers know how many elements they give");
    return sampler_.num_batches_of_pass(options_.batch_size, options_.drop_last);
  }

 private:
  friend Iterator;

  /// LibTorch's loader refuses a new pass while batches of the last one are in flight. This one
  /// first waits for them and drops them.
  class Loader : public Base {
   public:
    using Base::Base;
    void restart() {
      this->shuttle_.drain();
      static_cast<void>(this->begin());
    }
    std::optional<Batch> next() {
      try {
        return Base::next();
      } catch (const torch::data::WorkerException&) {
        // LibTorch does the same after a batch that could be read.
        if (this->options_.workers > 0) this->prefetch(1);
        throw;
      }
    }
  };

  std::size_t global_batch() const {
    if constexpr (kRankSampler) return sampler_.global_batch();
    return 0;
  }

  std::optional<Batch> next() {
    // A batch counts as received when the loop asks for it, because the loop saves its state
    // between batches. A batch that cannot be read counts too, because the loop does not get it
    // later.
    try {
      std::optional<Batch> batch = loader_->next();
      // At the end of a pass nothing more will be received, so a dropped batch does not count as
      // pending.
      count(batch ? received_ + 1 : std::numeric_limits<std::size_t>::max());
      return batch;
    } catch (const torch::data::WorkerException&) {
      count(received_ + 1);
      throw;
    } catch (...) {
      // With workers, the batch took too long and may still arrive.
      if (options_.workers == 0) count(received_ + 1);
      throw;
    }
  }
  void count(std::size_t received) {
    if constexpr (kRankSampler) {
      received_ = received;
      sampler_.set_received(received_);
    }
  }

  Sampler sampler_;  // shares its state with the loader's copy
  DataLoaderOptions options_;
  std::unique_ptr<Loader> loader_;
  std::size_t received_ = 0;
};

/// Makes a loader of this rank's batches.
template <class Dataset, class Sampler>
DataLoader<Dataset, Sampler> data_loader(Dataset dataset, Sampler sampler,
                                         const DataLoaderOptions& options = {}) {
  return DataLoader<Dataset, Sampler>(std::move(dataset), std::move(sampler), options);
}

}  // namespace kolo
