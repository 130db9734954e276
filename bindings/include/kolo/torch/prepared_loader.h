// What Accelerator::prepare() returns for data: a loader of this rank's batches, on the rank's
// device. Used by the training loop's thread.
//
//   kolo::Accelerator accelerator(argc, argv);
//   auto loader = accelerator.prepare(kolo::loader_recipe(data, {.batch_size = 64}));
//   for (auto& batch : loader) train(batch);
//
// All ranks use the same one of two kinds:
// - From a loader_recipe(), which is a data set and options. A DistributedSampler distributes the
//   data, so a rank reads only its own share. Each pass has the next epoch's permutation. After the
//   sampler was loaded, the first pass is the rest of the saved epoch.
// - From an existing loader, whose batches are dealt out: batch i goes to rank i mod size. Each
//   rank reads all batches, so they must come in one order on all ranks. LibTorch's RandomSampler
//   shuffles in rank 0's order. A loader whose workers keep no order is refused. If the last
//   batches do not suffice for all ranks, the other ranks get the pass's first batch again, so that
//   all make equally many steps.
// - The compiler refuses an existing loader whose sampler already gives each rank its share,
//   because dealing out again would drop most of the data.
//
// Details:
// - gather_for_metrics() leaves out repeated elements.
// - If several loaders give batches to one loop, the last batch of the longest one ends an
//   accumulation. A shorter one may be begun again meanwhile.
// - A loop that ends with a shorter loader counts as left early: its last gradients add up with the
//   next pass's.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/data_loader.h>
#include <kolo/torch/distributed_sampler.h>
#include <kolo/torch/map_tensors.h>
#include <kolo/torch/pass_iterator.h>
#include <kolo/torch/prepared.h>
#include <torch/data/dataloader.h>
#include <torch/data/samplers/base.h>
#include <torch/data/samplers/distributed.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

struct LoaderRecipeOptions {
  std::size_t batch_size = 1;  ///< elements of a batch, on each rank; the same on every rank
  bool shuffle = true;         ///< equal on every rank
  std::uint64_t seed = 0;      ///< equal on every rank
  std::size_t workers = 0;
  /// Drops elements that do not fill a batch on every rank. Otherwise shares are padded with
  /// elements that come twice.
  bool drop_last = false;
};

/// A data set and its loading options, for Accelerator::prepare().
template <class Dataset>
struct LoaderRecipe {
  using IsRecipe = void;
  Dataset dataset;
  LoaderRecipeOptions options;
};
template <class Dataset>
LoaderRecipe<Dataset> loader_recipe(Dataset dataset, const LoaderRecipeOptions& options = {}) {
  return {std::move(dataset), options};
}

/// Runs `call` with rank 0's random numbers on every rank. Afterwards the generator is as before,
/// except for one draw. Collective.
KOLO_API void with_shared_seed(const std::function<void()>& call);

/// The number of elements to distribute. Collective. Throws kInvalidArgument on all ranks if some
/// rank's data set does not know its size. Throws kMismatch, with both values, if sizes or options
/// differ between ranks, because elements or numbers of steps would differ.
KOLO_API std::size_t agreed_size(std::optional<std::size_t> data_size,
                                 const LoaderRecipeOptions& options);

/// Throws kInvalidArgument: batches without a fixed order cannot be dealt out.
[[noreturn]] KOLO_API void refuse_disorder();

/// Batches of a recipe. Construction is collective.
template <class Dataset>
class RecipeSource {
  using Loader = DataLoader<Dataset, DistributedSampler>;

 public:
  using Batch = typename Loader::Batch;
  explicit RecipeSource(LoaderRecipe<Dataset> recipe)
      : sampler_(agreed_size(recipe.dataset.size(), recipe.options),
                 {.shuffle = recipe.options.shuffle,
                  .seed = recipe.options.seed,
                  .drop_last = recipe.options.drop_last}),
        loader_(std::move(recipe.dataset), sampler_,
                {.batch_size = recipe.options.batch_size,
                 .workers = recipe.options.workers,
                 .drop_last = recipe.options.drop_last}) {}

  void set_epoch(std::size_t epoch) { sampler_.set_epoch(epoch); }
  DistributedSampler& sampler() { return sampler_; }
  std::size_t size() const { return loader_.size(); }

  void start() {
    choose_epoch();  // in case the last pass was left early
    at_.reset();
    given_ = 0;
  }
  std::optional<Batch> next() {
    if (at_) {
      ++given_;  // also a batch that cannot be read, as the sampler counts it
      ++*at_;
    } else {
      at_.emplace(loader_.begin());
      ++given_;
    }
    if (at_last()) choose_epoch();
    if (*at_ == std::default_sentinel) return std::nullopt;
    return **at_;
  }
  bool at_last() const { return given_ >= loader_.pass_size(); }
  /// See LoaderPass.
  std::int64_t rows() const { return static_cast<std::int64_t>(sampler_.last_batch_size()); }
  std::int64_t repeated_rows() const {
    return static_cast<std::int64_t>(sampler_.last_batch_padding());
  }

 private:
  /// Chooses the next epoch, unless the user has chosen one.
  void choose_epoch() {
    if (!sampler_.epoch_is_chosen()) sampler_.set_epoch(sampler_.epoch() + 1);
  }

  DistributedSampler sampler_;
  Loader loader_;
  std::optional<typename Loader::Iterator> at_;
  std::size_t given_ = 0;  ///< batches of this pass so far
};

/// Whether a loader's batches are already this rank's share.
template <class Loader>
struct DealsOut : std::false_type {};
template <class Sampler>
constexpr bool deals_out_to_ranks() {
  return std::is_base_of_v<RankSampler, Sampler> ||
         std::is_base_of_v<torch::data::samplers::DistributedSampler<>, Sampler>;
}
template <class Dataset, class Sampler>
struct DealsOut<DataLoader<Dataset, Sampler>> : std::bool_constant<deals_out_to_ranks<Sampler>()> {
};
template <class Dataset, class Sampler>
struct DealsOut<torch::data::StatelessDataLoader<Dataset, Sampler>>
    : std::bool_constant<deals_out_to_ranks<Sampler>()> {};

/// Batches of an existing loader: one of LibTorch's, or any range of batches.
template <class Loader>
class DealtSource {
  static_assert(
      !DealsOut<Loader>::value,
      "this loader gives each rank its share already; pass prepare() a loader_recipe() or "
      "a loader with a plain sampler, or use this one as it is");
  using First = decltype(std::declval<Loader&>().begin());
  using Last = decltype(std::declval<Loader&>().end());

 public:
  using Batch = std::remove_cvref_t<decltype(*std::declval<First&>())>;
  explicit DealtSource(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {
    if constexpr (requires { loader_->options().enforce_ordering; }) {
      if (loader_->options().workers > 0 && !loader_->options().enforce_ordering) refuse_disorder();
    }
  }

  void start() {
    // LibTorch's loaders with workers cannot begin a pass while batches of another are in flight.
    if constexpr (requires { loader_->options().workers; }) {
      if (at_ && loader_->options().workers > 0)
        while (*at_ != *last_) ++*at_;
    }
    at_.reset();
    last_.reset();
    with_shared_seed([&] {
      at_.emplace(loader_->begin());
      last_.emplace(loader_->end());
    });
    first_.reset();
  }
  std::optional<Batch> next() {
    std::optional<Batch> mine;
    repeats_ = false;
    for (int r = 0; r < kolo::size() && *at_ != *last_; ++r, ++*at_) {
      if (!first_) first_ = **at_;
      if (r == 0 || r == kolo::rank()) mine = **at_;
      repeats_ = r < kolo::rank();
    }
    if (mine && repeats_) mine = first_;
    return mine;
  }
  bool at_last() { return !(*at_ != *last_); }
  std::int64_t rows() const { return 0; }
  std::int64_t repeated_rows() const { return repeats_ ? -1 : 0; }

 private:
  std::shared_ptr<Loader> loader_;
  std::optional<First> at_;
  std::optional<Last> last_;
  std::optional<Batch> first_;  ///< first batch of the pass
  bool repeats_ = false;        ///< the last batch was the first one again
};

/// A loader of batches on the Accelerator's device, see the example at the top. It is a handle:
/// copies are at the same batch.
template <class Source>
class PreparedLoader {
 public:
  using Batch = typename Source::Batch;
  PreparedLoader(Source source, std::shared_ptr<AcceleratorState> state)
      : source_(std::make_shared<Source>(std::move(source))), state_(std::move(state)) {}

  using Iterator = PassIterator<PreparedLoader, Batch>;

  /// Begins a pass, and ends one that was left early.
  Iterator begin() {
    source_->start();
    auto pass = std::make_shared<LoaderPass>();
    auto& passes = state_->loader_passes;
    std::erase_if(passes, [](const auto& other) { return other.expired(); });
    passes.push_back(pass);
    progress_->pass = pass;
    progress_->given = 0;
    return Iterator(this, pass);
  }
  std::default_sentinel_t end() const { return {}; }

  /// Only for a recipe. Chooses the epoch of the next pass; later passes count on from it. The
  /// sampler's set_epoch() does the same.
  void set_epoch(std::size_t epoch) { source_->set_epoch(epoch); }
  /// Only for a recipe: number of batches of a whole pass on each rank.
  std::size_t size() const { return source_->size(); }
  /// Only for a recipe: the sampler, for a checkpoint. Save it between batches or passes, and load
  /// it on all ranks. A program that resumes counts from its epoch():
  ///
  ///   for (std::size_t epoch = loader.sampler().epoch(); epoch < epochs; ++epoch)
  ///     for (auto& batch : loader) train(batch);
  ///
  /// After loading, the next pass continues in its epoch after the batches that the loop had
  /// received; the pass after it is the next epoch. set_epoch() with another epoch starts that
  /// epoch instead. With the last batch of a pass the sampler moves to the start of the next epoch.
  /// For a pass that is left early it keeps the rest.
  DistributedSampler& sampler() { return source_->sampler(); }

 private:
  friend Iterator;

  std::optional<Batch> next() {
    std::optional<Batch> batch = source_->next();
    const auto open = progress_->pass.lock();
    LoaderPass pass;
    if (batch) {
      LoaderPass& before = progress_->last;
      pass = {.is_open = true,
              .has_last = source_->at_last(),
              .rows = source_->rows(),
              .repeated_rows = source_->repeated_rows(),
              .round = state_->round_of_batch(),
              .round_before = before.round,
              .length = ++progress_->given};
      if (!pass.has_last) ++pass.length;
      if constexpr (requires { source_->size(); })
        pass.length = std::max(pass.length, static_cast<std::int64_t>(source_->size()));
      pass.length = std::max(pass.length, before.length);
      if (pass.round == before.round) pass.round_before = before.round_before;
      before = pass;
      batch = map_tensors(*std::move(batch), [this](const torch::Tensor& tensor) {
        return tensor.to(state_->device);
      });
    }
    if (open != nullptr) *open = pass;
    return batch;
  }

  struct Progress {
    std::weak_ptr<LoaderPass> pass;
    std::int64_t given = 0;  ///< batches of this pass so far
    LoaderPass last;         ///< state at the last batch, also of an earlier pass
  };

  std::shared_ptr<Source> source_;
  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
};

template <class Source>
struct DealsOut<PreparedLoader<Source>> : std::true_type {};

}  // namespace kolo
