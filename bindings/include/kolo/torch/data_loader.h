// kolo::data_loader: LibTorch's data loader over a sampler that deals data out to the ranks, with
// what a trainer needs besides: a pass may be left early and the next one begun, and the sampler
// knows which batches the training loop has got, though workers have read further ahead.
// Used by the training loop's thread; its workers call the data set's get_batch(), each on its
// copy.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/pass_iterator.h>
#include <kolo/torch/rank_sampler.h>
#include <torch/torch.h>

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
  /// Elements of a batch, on this rank. Leave it at 1 when the sampler has a global batch, of which
  /// it gives each rank its share.
  std::size_t batch_size = 1;
  std::size_t workers = 0;   ///< threads that read; 0: the training loop's own
  bool drop_last = false;    ///< leaves out a last batch that is smaller than batch_size
  std::size_t prefetch = 2;  ///< batches that each worker reads ahead; not 0 when there are workers
  /// How long a batch may take when there are workers; without one, as long as it takes.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// LibTorch's options for these; throws kInvalidArgument for what does not fit.
KOLO_API torch::data::DataLoaderOptions loader_options(const DataLoaderOptions& options,
                                                       std::size_t global_batch);

/// `for (auto& batch : loader)`; begin() begins a pass, and ends one that was left early.
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

  /// Where the first batch cannot be read, the next begin() begins the same pass.
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

  /// Batches of a whole pass on this rank. Precondition: the sampler is one of kolo's.
  std::size_t size() const {
    static_assert(kRankSampler, "only kolo's samplers know how many elements they give");
    return sampler_.num_batches(options_.batch_size, options_.drop_last);
  }
  /// Batches of the pass under way, which may be the rest of one. Precondition: as size().
  std::size_t pass_size() const {
    static_assert(kRankSampler, "only kolo's samplers know how many elements they give");
    return sampler_.num_batches_of_pass(options_.batch_size, options_.drop_last);
  }

 private:
  friend Iterator;

  /// LibTorch's loader refuses a new pass while batches of the last one are under way; this one
  /// first awaits and drops them.
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
        // As LibTorch does behind a batch that could be read.
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
    // A batch is got when the loop asks for it, for the loop saves its state between batches; also
    // one that cannot be read, for the loop does not get it later.
    try {
      std::optional<Batch> batch = loader_->next();
      // At the end of a pass the loop has got all that it will get: a dropped batch does not wait.
      count(batch ? received_ + 1 : std::numeric_limits<std::size_t>::max());
      return batch;
    } catch (const torch::data::WorkerException&) {
      count(received_ + 1);
      throw;
    } catch (...) {
      // With workers it took too long, and may come yet.
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

  Sampler sampler_;  // a handle on the state of the loader's own
  DataLoaderOptions options_;
  std::unique_ptr<Loader> loader_;
  std::size_t received_ = 0;
};

/// A loader of this rank's batches.
template <class Dataset, class Sampler>
DataLoader<Dataset, Sampler> data_loader(Dataset dataset, Sampler sampler,
                                         const DataLoaderOptions& options = {}) {
  return DataLoader<Dataset, Sampler>(std::move(dataset), std::move(sampler), options);
}

}  // namespace kolo
