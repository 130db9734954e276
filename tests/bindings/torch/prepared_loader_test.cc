// The Accelerator's loaders: each element once over all ranks, as many batches on each. On all
// ranks at once.
#include <kolo/torch.h>

#include <gtest/gtest.h>

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

/// What a pass gives all ranks, without what comes twice; checks that steps are alike.
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
  EXPECT_FALSE(accelerator.state().end_of_loader);
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

TEST(PreparedLoader, DealsOutTheBatchesOfALoaderThatExists) {
  kolo::Accelerator accelerator;
  for (const std::size_t count : {1U, 3U, 8U, 23U}) {
    // Without help every rank would have a random order of its own.
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
  // Any range of batches, and the generator as it was but for one draw.
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

TEST(PreparedLoader, APassMayBeLeftEarly) {
  kolo::Accelerator accelerator;
  auto loader = accelerator.prepare(kolo::loader_recipe(stacked(40), {.batch_size = 2}));
  auto existing = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      stacked(40), torch::data::DataLoaderOptions(2));
  auto dealt = accelerator.prepare(std::move(existing));
  for (auto& batch : loader) {
    EXPECT_EQ(batch.data.size(0), 2);
    break;
  }
  EXPECT_EQ(sorted(pass_of(accelerator, loader)), up_to(40));
  EXPECT_EQ(sorted(pass_of(accelerator, dealt)), up_to(40));
}

}  // namespace
