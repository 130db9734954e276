// The Accelerator's loaders: each element once over all ranks, and the same number of batches on
// each rank. On all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace {

/// Item i is the number i.
class Numbers : public torch::data::datasets::Dataset<Numbers> {
 public:
  explicit Numbers(std::size_t count) : count_(count) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto value = static_cast<float>(index);
    return {torch::tensor({value}), torch::tensor(2 * value)};
  }
  std::optional<std::size_t> size() const override { return count_; }

 private:
  std::size_t count_;
};

auto stacked(std::size_t count) { return Numbers(count).map(torch::data::transforms::Stack<>()); }

/// The elements of all ranks in a pass, without repeated ones; checks that ranks make the same
/// steps.
template <class Loader>
std::vector<float> pass_of(kolo::Accelerator& accelerator, Loader& loader) {
  std::vector<float> all;
  std::int64_t steps = 0;
  for (auto& batch : loader) {
    const auto [data, target] =
        accelerator.gather_for_metrics(std::tuple(batch.data.flatten(), batch.target));
    EXPECT_TRUE(torch::equal(2 * data, target));
    for (std::int64_t i = 0; i < data.size(0); ++i) all.push_back(data[i].template item<float>());
    ++steps;
    const auto most = kolo::allreduce(torch::tensor({steps}), {.op = kolo::ReduceOp::kMax});
    EXPECT_EQ(most.template item<std::int64_t>(), steps);
  }
  EXPECT_FALSE(accelerator.state().loader_pass().is_open);
  return all;
}

std::vector<float> sorted(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<float> up_to(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(PreparedLoader, ARecipesPassGivesEachElementOnce) {
  kolo::Accelerator accelerator;
  for (const std::size_t count : {1U, 7U, 12U, 25U}) {
    auto loader = accelerator.prepare(kolo::loader_recipe(stacked(count), {.batch_size = 4}));
    const auto first = pass_of(accelerator, loader);
    EXPECT_EQ(sorted(first), up_to(count));
    const auto second = pass_of(accelerator, loader);
    EXPECT_EQ(sorted(second), up_to(count));
    if (count == 25) {
      EXPECT_NE(first, second) << "another order each pass";
      loader.set_epoch(0);
      EXPECT_EQ(pass_of(accelerator, loader), first);
    }
  }
}

TEST(PreparedLoader, ABatchThatIsFilledUpHasALoss) {
  kolo::Accelerator accelerator;
  const auto count = static_cast<std::size_t>(2 * kolo::size() - (kolo::size() > 1 ? 1 : 0));
  auto loader =
      accelerator.prepare(kolo::loader_recipe(stacked(count), {.batch_size = 2, .shuffle = false}));
  for (auto& batch : loader) {
    EXPECT_EQ(accelerator.gather_for_metrics(batch.data.mean()).numel(), kolo::size());
    EXPECT_EQ(accelerator.gather_for_metrics(batch.data).size(0), static_cast<int>(count));
  }
}

using Batches = std::vector<std::vector<float>>;

/// This rank's batches of a pass; checks that only the last one is announced as the last.
template <class Loader>
Batches batches_of(kolo::Accelerator& accelerator, Loader& loader,
                   const std::function<void(std::size_t batches)>& at_batch = {}) {
  Batches batches;
  std::vector<bool> last;
  for (auto& batch : loader) {
    const torch::Tensor data = batch.data.flatten();
    batches.emplace_back(data.template data_ptr<float>(),
                         data.template data_ptr<float>() + data.numel());
    last.push_back(accelerator.state().loader_pass().has_last);
    if (at_batch) at_batch(batches.size());
  }
  std::vector<bool> expected(batches.size(), false);
  if (!expected.empty()) expected.back() = true;
  EXPECT_EQ(last, expected);
  return batches;
}

Batches from(const Batches& batches, std::ptrdiff_t first) {
  return {batches.begin() + first, batches.end()};
}

template <class Loader>
std::string saved(Loader& loader) {
  std::ostringstream state;
  torch::save(loader.sampler(), state);
  return std::move(state).str();
}

template <class Loader>
void load(Loader& loader, const std::string& bytes) {
  std::istringstream state(bytes);
  torch::load(loader.sampler(), state);
}

TEST(PreparedLoader, GoesOnWhereItsSamplerWasSaved) {
  kolo::Accelerator accelerator;
  const auto count = static_cast<std::size_t>(11 * kolo::size());
  for (const std::size_t workers : {0U, 2U}) {
    for (const bool drop_last : {false, true}) {
      const auto make = [&] {
        return accelerator.prepare(kolo::loader_recipe(
            stacked(count), {.batch_size = 2, .workers = workers, .drop_last = drop_last}));
      };
      const std::size_t whole = drop_last ? 5 : 6;
      auto loader = make();
      std::vector<Batches> epochs;
      std::string early, late, at_last;
      epochs.push_back(batches_of(accelerator, loader));
      epochs.push_back(batches_of(accelerator, loader, [&](std::size_t batches) {
        if (batches == 2) early = saved(loader);
        if (batches == whole - 1) late = saved(loader);
        if (batches == whole) at_last = saved(loader);
      }));
      const std::string between = saved(loader);
      epochs.push_back(batches_of(accelerator, loader));
      epochs.push_back(batches_of(accelerator, loader));

      auto resumed = make();
      load(resumed, early);
      EXPECT_EQ(resumed.sampler().epoch(), 1U);
      EXPECT_EQ(resumed.size(), whole);
      EXPECT_EQ(batches_of(accelerator, resumed), from(epochs[1], 2));
      EXPECT_EQ(batches_of(accelerator, resumed), epochs[2]) << "the next pass is whole";
      load(resumed, late);  // also in a loader that has made passes
      EXPECT_EQ(batches_of(accelerator, resumed), from(epochs[1], -1 + static_cast<int>(whole)));
      EXPECT_EQ(batches_of(accelerator, resumed), epochs[2]);
      for (const std::string& ended : {at_last, between}) {
        load(resumed, ended);
        EXPECT_EQ(resumed.sampler().epoch(), 2U);
        EXPECT_EQ(batches_of(accelerator, resumed), epochs[2]);
        EXPECT_EQ(batches_of(accelerator, resumed), epochs[3]);
      }
    }
  }
}

TEST(PreparedLoader, TheUserChoosesTheEpoch) {
  kolo::Accelerator accelerator;
  const auto make = [&] {
    return accelerator.prepare(kolo::loader_recipe(
        stacked(static_cast<std::size_t>(8 * kolo::size())), {.batch_size = 2}));
  };
  auto loader = make();
  std::vector<Batches> epochs;
  std::string state;
  for (std::size_t epoch = 0; epoch < 4; ++epoch) {
    loader.set_epoch(epoch);  // has no effect on the order
    epochs.push_back(batches_of(accelerator, loader, [&](std::size_t batches) {
      if (epoch == 1 && batches == 3) state = saved(loader);
    }));
  }
  load(loader, state);
  loader.set_epoch(1);
  EXPECT_EQ(batches_of(accelerator, loader), from(epochs[1], 3)) << "the epoch that was saved";
  load(loader, state);
  loader.set_epoch(3);
  EXPECT_EQ(batches_of(accelerator, loader), epochs[3]) << "another one is whole";
  loader.sampler().set_epoch(0);
  EXPECT_EQ(batches_of(accelerator, loader), epochs[0]);
  EXPECT_EQ(batches_of(accelerator, loader, [&](std::size_t) { loader.set_epoch(3); }), epochs[1])
      << "for the next pass";
  EXPECT_EQ(batches_of(accelerator, loader), epochs[3]);
  // A pass is left early, then the same or the next epoch runs.
  const auto leave = [&](std::size_t epoch) {
    loader.set_epoch(epoch);
    EXPECT_NE(loader.begin(), loader.end());
  };
  leave(2);
  loader.set_epoch(2);
  EXPECT_EQ(batches_of(accelerator, loader), epochs[2]);
  leave(2);
  EXPECT_EQ(batches_of(accelerator, loader), epochs[3]);
  leave(2);
  load(loader, state);
  EXPECT_EQ(batches_of(accelerator, loader), from(epochs[1], 3));
}

TEST(PreparedLoader, TheLastBatchOfAPassEndsAccumulation) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 4});
  torch::nn::Linear linear(1, 1);
  auto [loader, model] =
      accelerator.prepare(kolo::loader_recipe(stacked(static_cast<std::size_t>(6 * kolo::size())),
                                              {.batch_size = 1, .workers = 1}),
                          linear);
  EXPECT_EQ(loader.size(), 6U);
  std::vector<bool> synchronized;
  for (auto& batch : loader) {
    auto pass = accelerator.accumulate(model);
    accelerator.backward(model.forward(batch.data).mean());
    synchronized.push_back(accelerator.sync_gradients());
  }
  EXPECT_EQ(synchronized, (std::vector<bool>{false, false, false, true, false, true}));
}

/// Cannot read the `until`-th element that it is asked for from now on.
class Unreadable : public torch::data::datasets::Dataset<Unreadable> {
 public:
  Unreadable(std::size_t count, std::shared_ptr<int> until)
      : numbers_(count), until_(std::move(until)) {}
  torch::data::Example<> get(std::size_t index) override {
    if (--*until_ == 0) throw std::runtime_error("unreadable");
    return numbers_.get(index);
  }
  std::optional<std::size_t> size() const override { return numbers_.size(); }

 private:
  Numbers numbers_;
  std::shared_ptr<int> until_;
};

TEST(PreparedLoader, AFirstBatchThatCannotBeReadLeavesTheEpoch) {
  kolo::Accelerator accelerator;
  const auto count = static_cast<std::size_t>(6 * kolo::size());
  const kolo::LoaderRecipeOptions options = {.batch_size = 2};
  auto readable = accelerator.prepare(kolo::loader_recipe(stacked(count), options));
  std::vector<Batches> epochs;
  std::string state;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    epochs.push_back(batches_of(accelerator, readable, [&](std::size_t batches) {
      if (epoch == 1 && batches == 2) state = saved(readable);
    }));
  }
  const auto until = std::make_shared<int>(0);
  auto loader = accelerator.prepare(kolo::loader_recipe(
      Unreadable(count, until).map(torch::data::transforms::Stack<>()), options));
  const auto expect_again = [&](const Batches& batches) {
    *until = 1;
    EXPECT_ANY_THROW(loader.begin());
    EXPECT_EQ(batches_of(accelerator, loader), batches);
  };
  for (const Batches& batches : epochs) expect_again(batches);
  load(loader, state);
  expect_again(from(epochs[1], 2));
  expect_again(epochs[2]);
}

TEST(PreparedLoader, TheLastBatchIsKnownAfterOneThatCannotBeRead) {
  kolo::Accelerator accelerator;
  auto loader = accelerator.prepare(kolo::loader_recipe(
      Unreadable(static_cast<std::size_t>(5 * kolo::size()), std::make_shared<int>(3))
          .map(torch::data::transforms::Stack<>())));
  auto at = loader.begin();
  ++at;
  EXPECT_ANY_THROW(++at);
  for (const bool is_last : {false, true}) {
    ++at;
    EXPECT_EQ(accelerator.state().loader_pass().has_last, is_last);
  }
  EXPECT_EQ(loader.sampler().epoch(), 1U) << "with its last batch it is at the next one's start";
  ++at;
  EXPECT_EQ(at, std::default_sentinel);
}

TEST(PreparedLoader, ALoopWithinALoopLeavesTheOuterOnes) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 4});
  const auto size = static_cast<std::size_t>(kolo::size());
  // Seven batches; the last one has one row, which is repeated on all ranks but one.
  auto loader = accelerator.prepare(
      kolo::loader_recipe(stacked(12 * size + 1), {.batch_size = 2, .shuffle = false}));
  auto inner = accelerator.prepare(kolo::loader_recipe(stacked(size), {.batch_size = 1}));
  torch::nn::Linear network(1, 1);
  auto model = accelerator.prepare(network);
  int steps = 0;
  std::int64_t rows = 0;
  for (auto& batch : loader) {
    for (auto& other : inner) EXPECT_EQ(other.data.size(0), 1);
    const auto first = *inner.begin();  // a pass that is left at once, on its last batch
    const auto pass = accelerator.accumulate(model);
    steps += accelerator.sync_gradients() ? 1 : 0;
    rows += accelerator.gather_for_metrics(batch.data).size(0);
  }
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(rows, static_cast<std::int64_t>(12 * size + 1));
  const auto sample = *inner.begin();
  EXPECT_FALSE(accelerator.state().loader_pass().is_open);
}

TEST(PreparedLoader, SeveralRowsForEachOfTheBatchGoTogether) {
  kolo::Accelerator accelerator;
  const auto count = static_cast<std::size_t>(2 * kolo::size() + 1);
  auto loader =
      accelerator.prepare(kolo::loader_recipe(stacked(count), {.batch_size = 2, .shuffle = false}));
  std::int64_t tokens = 0;
  for (auto& batch : loader)
    tokens += accelerator.gather_for_metrics(batch.data.flatten().repeat_interleave(3)).size(0);
  EXPECT_EQ(tokens, static_cast<std::int64_t>(3 * count));
}

TEST(PreparedLoader, WhatIsGatheredOfARecipeIsInTheDataSetsOrder) {
  kolo::Accelerator accelerator;
  auto loader =
      accelerator.prepare(kolo::loader_recipe(stacked(13), {.batch_size = 2, .shuffle = false}));
  EXPECT_EQ(pass_of(accelerator, loader), up_to(13));
  std::vector<torch::Tensor> tokens, odd;
  for (auto& batch : loader) {
    const auto several = torch::stack({batch.target, batch.target + 1}, 1).flatten();
    tokens.push_back(accelerator.gather_for_metrics(several));
    // Not the batch's number of rows, on one rank alone: gathered by rank, on all.
    const auto mine = torch::full({kolo::rank() == 0 ? 4 : 3}, kolo::rank());
    odd.push_back(accelerator.gather_for_metrics(mine));
  }
  const auto all = std::get<0>(torch::cat(tokens).sort());
  EXPECT_TRUE(torch::equal(all, torch::arange(26, torch::kFloat32)));
  EXPECT_TRUE(torch::equal(odd[0], std::get<0>(odd[0].sort())));
}

TEST(PreparedLoader, RowsThatAreNotTheBatchsStayByRank) {
  kolo::Accelerator accelerator;
  const int size = kolo::size();
  // One batch of three per rank; the last rank's is padded.
  auto padded = accelerator.prepare(kolo::loader_recipe(
      stacked(static_cast<std::size_t>(3 * size - (size > 1 ? 1 : 0))), {.batch_size = 3}));
  for (auto& batch : padded) {
    EXPECT_EQ(batch.data.size(0), 3);
    const auto of_classes = torch::full({5, 4}, kolo::rank());
    EXPECT_TRUE(
        torch::equal(accelerator.gather_for_metrics(of_classes),
                     torch::arange(size).repeat_interleave(5).view({-1, 1}).expand({-1, 4})));
  }
  // Twice the batch's number of rows, but unrelated to it.
  auto even = accelerator.prepare(
      kolo::loader_recipe(stacked(static_cast<std::size_t>(5 * size)), {.batch_size = 5}));
  for (auto& batch : even) {
    EXPECT_EQ(batch.data.size(0), 5);
    const auto of_classes = torch::arange(10) + 10 * kolo::rank();
    EXPECT_TRUE(torch::equal(accelerator.gather_for_metrics(of_classes), torch::arange(10 * size)));
  }
}

TEST(PreparedLoader, ALoaderWithoutAnOrderIsRefused) {
  kolo::Accelerator accelerator;
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      stacked(8), torch::data::DataLoaderOptions(2).workers(2).enforce_ordering(false));
  EXPECT_THAT(kolo::test::message_of([&] { accelerator.prepare(std::move(loader)); }),
              testing::HasSubstr("workers keep no order"));
}

TEST(PreparedLoader, DealsOutTheBatchesOfALoaderThatExists) {
  kolo::Accelerator accelerator;
  for (const std::size_t count : {1U, 3U, 8U, 23U}) {
    // Without kolo's help, every rank would have its own random order.
    torch::manual_seed(static_cast<std::uint64_t>(kolo::rank()));
    auto existing = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
        stacked(count), torch::data::DataLoaderOptions(2));
    auto loader = accelerator.prepare(existing);
    const auto first = pass_of(accelerator, loader);
    EXPECT_EQ(sorted(first), up_to(count));
    if (count == 23) {
      EXPECT_NE(pass_of(accelerator, loader), first);
    }
  }
  // Any range of batches; the generator stays as it was but for one draw.
  std::vector<torch::data::Example<>> batches;
  for (int i = 0; i < 5; ++i) {
    const auto value = torch::full({1, 1}, static_cast<float>(i));
    batches.emplace_back(value, 2 * value.flatten());
  }
  auto loader = accelerator.prepare(batches);
  torch::manual_seed(5);
  EXPECT_EQ(sorted(pass_of(accelerator, loader)), up_to(5));
  const auto after = torch::rand({1});
  torch::manual_seed(5);
  torch::randint(10, {1});
  EXPECT_TRUE(torch::equal(after, torch::rand({1})));
}

TEST(PreparedLoader, ASharedSeedWaitsForThreadsThatDraw) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::thread drawing;
  bool is_torn = false;
  kolo::with_shared_seed([&] {
    std::promise<void> begun;
    drawing = std::thread([&] {
      const std::lock_guard lock(generator.mutex());
      const torch::Tensor before = generator.get_state();
      begun.set_value();
      for (int i = 0; i < 10000; ++i)
        is_torn = is_torn || !torch::equal(generator.get_state(), before);
    });
    begun.get_future().wait();
  });
  drawing.join();
  EXPECT_FALSE(is_torn) << "another thread changed it while this one had its mutex";
}

/// A data set of unknown size.
class Endless : public torch::data::datasets::BatchDataset<Endless, torch::Tensor> {
 public:
  torch::Tensor get_batch(c10::ArrayRef<std::size_t> indices) override {
    return torch::zeros({static_cast<std::int64_t>(indices.size())});
  }
  std::optional<std::size_t> size() const override { return std::nullopt; }
};

TEST(PreparedLoader, RanksOfOneRecipeAgree) {
  kolo::Accelerator accelerator;
  const auto error_of = [&](std::size_t count, const kolo::LoaderRecipeOptions& options) {
    return kolo::test::message_of(
        [&] { accelerator.prepare(kolo::loader_recipe(stacked(count), options)); });
  };
  const int last = kolo::size() - 1;
  const bool is_odd = kolo::rank() == last && last > 0;
  const auto says = [&](const std::string& what, int first, int other) {
    if (last == 0) return testing::HasSubstr("(no error)");
    return testing::HasSubstr("the " + what + " is " + std::to_string(first) + " on rank 0, but " +
                              std::to_string(other) + " on rank " + std::to_string(last) +
                              "; pass the same");
  };
  EXPECT_THAT(error_of(is_odd ? 11 : 12, {}), says("data size", 12, 11));
  EXPECT_THAT(error_of(12, {.batch_size = is_odd ? 3U : 2U}), says("batch size", 2, 3));
  EXPECT_THAT(error_of(12, {.seed = is_odd ? 8U : 7U}), says("seed", 7, 8));
  EXPECT_THAT(error_of(12, {.shuffle = is_odd}), says("shuffle", 0, 1));
  EXPECT_EQ(error_of(12, {}), "(no error)");
  EXPECT_THAT(kolo::test::message_of([&] { accelerator.prepare(kolo::loader_recipe(Endless())); }),
              testing::HasSubstr("rank 0: loader_recipe: the data set's size() knows no number"));
}

TEST(PreparedLoader, WhatIsDealtOutAlreadyIsKnown) {
  namespace samplers = torch::data::samplers;
  using Data = decltype(stacked(1));
  using kolo::DealsOut;
  using torch::data::StatelessDataLoader;
  // prepare() checks this at compile time.
  static_assert(DealsOut<kolo::DataLoader<Data, kolo::DistributedSampler>>::value);
  static_assert(DealsOut<kolo::DataLoader<Data, kolo::ElasticSampler>>::value);
  static_assert(DealsOut<StatelessDataLoader<Data, kolo::DistributedEvalSampler>>::value);
  static_assert(DealsOut<StatelessDataLoader<Data, samplers::DistributedRandomSampler>>::value);
  static_assert(DealsOut<StatelessDataLoader<Data, samplers::DistributedSequentialSampler>>::value);
  static_assert(DealsOut<kolo::PreparedLoader<kolo::RecipeSource<Data>>>::value);
  static_assert(!DealsOut<StatelessDataLoader<Data, samplers::RandomSampler>>::value);
  static_assert(!DealsOut<kolo::DataLoader<Data, samplers::SequentialSampler>>::value);
  static_assert(!DealsOut<std::vector<torch::data::Example<>>>::value);
}

TEST(PreparedLoader, APassMayBeLeftEarly) {
  kolo::Accelerator accelerator;
  auto loader = accelerator.prepare(kolo::loader_recipe(stacked(40), {.batch_size = 2}));
  auto existing = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      stacked(40), torch::data::DataLoaderOptions(2));
  auto dealt = accelerator.prepare(std::move(existing));
  auto by_workers =
      accelerator.prepare(torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
          stacked(40), torch::data::DataLoaderOptions(2).workers(1)));
  const auto leave_early_and_pass = [&](auto& batches) {
    for (auto& batch : batches) {
      EXPECT_EQ(batch.data.size(0), 2);
      break;
    }
    EXPECT_EQ(sorted(pass_of(accelerator, batches)), up_to(40));
  };
  leave_early_and_pass(loader);
  leave_early_and_pass(dealt);
  leave_early_and_pass(by_workers);
}

}  // namespace
