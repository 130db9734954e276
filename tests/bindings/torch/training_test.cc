// A training loop as the README writes it, and what a trainer may do in between: freeze and thaw
// layers, make several backward passes, keep odd layouts, submit tensors. On all ranks at once.
#include "tests/support/warnings.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace {

using kolo::test::ranks_mean;

/// Item i is the number i.
class Numbers : public torch::data::datasets::Dataset<Numbers> {
 public:
  explicit Numbers(std::size_t count) : count_(count) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto value = static_cast<double>(index);
    return {torch::tensor({value}), torch::tensor({2 * value})};
  }
  std::optional<std::size_t> size() const override { return count_; }

 private:
  std::size_t count_;
};

/// The warnings on this rank during three steps of a module with two types. The last rank's bias of
/// layer `layer` differs by `apart` in its last element.
std::vector<std::string> warned_of(std::size_t layer, double apart, bool broadcast) {
  const kolo::test::Warnings warnings;
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(4, 3), torch::nn::Linear(3, 2));
  model[1]->to(torch::kFloat64);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.01),
                                       model->named_parameters());
  if (kolo::rank() == kolo::size() - 1) {
    const torch::NoGradGuard no_grad;
    model->parameters()[2 * layer + 1][-1] += apart;
  }
  if (broadcast) kolo::broadcast_parameters(*model, 0);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    auto loss = torch::zeros({}, torch::kFloat64);
    for (const auto& parameter : model->parameters()) loss = loss + parameter.square().sum();
    loss.backward();
    optimizer.step();
  }
  return warnings.all;
}

TEST(Training, RanksThatBeginApartAreToldSo) {
  for (const std::size_t layer : {0U, 1U}) {
    EXPECT_THAT(warned_of(layer, 0, false), testing::IsEmpty());
    EXPECT_THAT(warned_of(layer, 1e-6, true), testing::IsEmpty());
    const auto warned = warned_of(layer, 1e-6, false);
    if (kolo::rank() == 0 && kolo::size() > 1) {
      EXPECT_THAT(warned,
                  testing::ElementsAre(testing::HasSubstr("broadcast_parameters(*model, 0)")));
    } else {
      EXPECT_THAT(warned, testing::IsEmpty());
    }
  }
}

TEST(Training, WhatBeginsApartIsFoundWhateverItsTypeAndStrides) {
  const bool is_last = kolo::rank() == kolo::size() - 1;
  for (const auto type :
       {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kComplexFloat}) {
    for (const double apart : {0, 1}) {
      const kolo::test::Warnings warnings;
      // One element, which counts as contiguous although its stride is five.
      auto odd = torch::ones({1, 5}).select(1, 0).requires_grad_();
      auto last =
          torch::full({5}, is_last ? apart : 0, torch::TensorOptions(type)).requires_grad_();
      kolo::DistributedOptimizer optimizer(torch::optim::SGD({odd, last}, 0.5),
                                           kolo::NamedTensors{{"odd", odd}, {"last", last}});
      (odd.sum() + torch::abs(last).sum()).backward();
      optimizer.step();
      const bool warns = apart != 0 && kolo::rank() == 0 && kolo::size() > 1;
      EXPECT_EQ(warnings.all.size(), warns ? 1U : 0U) << type << ", " << apart;
    }
  }
}

TEST(Training, TheReadmesLoopLearnsAndLeavesRanksEqual) {
  constexpr std::size_t kItems = 50;
  torch::manual_seed(static_cast<std::uint64_t>(kolo::rank()));  // other weights on every rank
  torch::nn::Linear model(1, 1);
  kolo::DistributedSampler sampler(kItems);
  auto data = Numbers(kItems).map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader(std::move(data), sampler,
                                              torch::data::DataLoaderOptions().batch_size(8));
  kolo::DistributedOptimizer optimizer(torch::optim::AdamW(model->parameters(), 0.05),
                                       model->named_parameters());
  kolo::broadcast_parameters(*model, /*root=*/0);
  std::vector<double> first_of_epoch;
  double last_loss = 0;
  for (std::size_t epoch = 0; epoch < 40; ++epoch) {
    sampler.set_epoch(epoch);  // the loader holds a copy, which shares its state
    std::set<double> seen;
    for (auto& batch : *loader) {
      if (seen.empty()) first_of_epoch.push_back(batch.data[0].item<double>());
      for (int i = 0; i < batch.data.size(0); ++i) seen.insert(batch.data[i].item<double>());
      optimizer.zero_grad();
      auto loss = torch::mse_loss(model->forward(batch.data.to(torch::kFloat32) / 50),
                                  batch.target.to(torch::kFloat32) / 50);
      loss.backward();
      optimizer.step();
      last_loss = loss.item<double>();
    }
    EXPECT_EQ(seen.size(), sampler.num_samples());
  }
  EXPECT_LT(last_loss, 1e-2);
  EXPECT_GT(std::set<double>(first_of_epoch.begin(), first_of_epoch.end()).size(), 5U)
      << "another order each epoch";
  auto weight = model->weight.detach().clone();
  EXPECT_TRUE(torch::equal(kolo::broadcast(weight, 0), weight)) << "bit-identical on every rank";
}

TEST(Training, FrozenLayersAreLeftAloneAndMayThaw) {
  torch::nn::Linear model(2, 2);
  kolo::broadcast_parameters(model->named_parameters(), 0);
  model->weight.set_requires_grad(false);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 1.0),
                                       model->named_parameters());
  const auto frozen = model->weight.detach().clone();
  const auto step = [&] {
    optimizer.zero_grad();
    (model->forward(torch::ones({1, 2})).sum() * (kolo::rank() + 1)).backward();
    optimizer.step();
  };
  step();
  EXPECT_TRUE(torch::equal(model->weight, frozen));
  model->weight.set_requires_grad(true);
  step();
  EXPECT_TRUE(torch::allclose(model->weight, frozen - ranks_mean()));
  model->bias.set_requires_grad(false);
  const auto bias = model->bias.detach().clone();
  step();
  EXPECT_TRUE(torch::equal(model->bias, bias));
  EXPECT_TRUE(torch::allclose(model->weight, frozen - 2 * ranks_mean()));
}

/// Has a parameter that has never required a gradient, so that autograd does not know it.
struct WithPositionsImpl : torch::nn::Module {
  torch::Tensor positions = register_parameter("positions", torch::ones({1, 3}), false);
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(3, 1))};
  torch::Tensor forward(const torch::Tensor& input) { return linear(input + positions); }
};
TORCH_MODULE(WithPositions);

TEST(Training, AParameterThatNeverRequiredAGradientIsLeftAlone) {
  const auto steps = [](WithPositions& model, auto& optimizer, const auto& forward) {
    const torch::Tensor before = model->linear->weight.detach().clone();
    optimizer.zero_grad();
    forward(torch::ones({2, 3})).sum().backward();
    optimizer.step();
    EXPECT_FALSE(torch::equal(model->linear->weight, before));
    EXPECT_TRUE(torch::equal(model->positions, torch::ones({1, 3})));
  };
  WithPositions one, two, three;
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(one->parameters(), 0.1),
                                       one->named_parameters());
  steps(one, optimizer, [&](const torch::Tensor& input) { return one(input); });
  kolo::DistributedDataParallel ddp(two);
  torch::optim::SGD plain(two->parameters(), 0.1);
  steps(two, plain, [&](const torch::Tensor& input) { return ddp(input); });
  kolo::broadcast_parameters(*three, 0);
  kolo::ShardedOptimizer sharded(torch::optim::SGD(three->parameters(), 0.1),
                                 three->named_parameters());
  steps(three, sharded, [&](const torch::Tensor& input) { return three(input); });
}

TEST(Training, AParameterThatIsNotContiguousIsReduced) {
  auto weight = torch::zeros({3, 4}).t().detach().requires_grad_();
  ASSERT_FALSE(weight.is_contiguous());
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({weight}, 1.0),
                                       kolo::NamedTensors{{"w", weight}});
  const auto slope = torch::arange(12.0).reshape({4, 3});
  ((weight * slope).sum() * (kolo::rank() + 1)).backward();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(weight, slope * -ranks_mean()));
}

TEST(Training, AMissingGradientHasItsParametersStrides) {
  auto used = torch::ones({2}).requires_grad_();
  auto weight = torch::zeros({3, 4}).t().detach().requires_grad_();
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({used, weight}, 1.0),
                                       kolo::NamedTensors{{"used", used}, {"w", weight}});
  const bool has_it = kolo::rank() == kolo::size() - 1;
  (used.sum() + (has_it ? weight.sum() : torch::zeros({}))).backward();
  optimizer.step();
  EXPECT_EQ(weight.grad().strides(), weight.strides());
  EXPECT_TRUE(torch::allclose(weight, torch::full({4, 3}, -1.0 / kolo::size())));
}

TEST(Training, WorkByHandCanBePolledAndAwaited) {
  auto tensor = torch::full({1000}, kolo::rank() + 1.0);
  kolo::TensorWork work = kolo::allreduce_async(tensor, {.op = kolo::ReduceOp::kAverage});
  const torch::Tensor mean = kolo::synchronize(work);
  EXPECT_TRUE(kolo::poll(work));
  EXPECT_TRUE(torch::allclose(mean, torch::full({1000}, ranks_mean())));
  EXPECT_EQ(tensor[0].item<double>(), kolo::rank() + 1) << "not in place";
}

TEST(Sampler, DropsTheLastItemsThatRanksCannotShare) {
  std::multiset<std::size_t> seen;
  for (int rank = 0; rank < 4; ++rank) {
    kolo::DistributedSampler sampler(
        10, {.shuffle = false, .drop_last = true, .rank = rank, .size = 4});
    EXPECT_EQ(sampler.num_samples(), 2U);
    while (const auto batch = sampler.next(3)) seen.insert(batch->begin(), batch->end());
  }
  EXPECT_EQ(seen, (std::multiset<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
