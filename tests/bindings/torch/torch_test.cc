// The LibTorch binding, alone and under mpirun: every test runs on all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <algorithm>
#include <set>
#include <thread>

namespace {

using kolo::test::message_of;
using kolo::test::ranks_sum;
using testing::HasSubstr;

using Group = torch::optim::OptimizerParamGroup;

TEST(Functions, AllreduceTakesEveryTypeAndLayout) {
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64}) {
    const auto input = torch::full({3, 5}, kolo::rank() + 1, type);
    EXPECT_TRUE(torch::equal(kolo::allreduce(input), torch::full({3, 5}, ranks_sum(), type)));
    EXPECT_TRUE(torch::equal(kolo::allreduce(input.t()), torch::full({5, 3}, ranks_sum(), type)));
  }
  auto strided = torch::zeros({4, 6}).slice(1, 0, 6, 2);
  strided.fill_(kolo::rank() + 1);
  kolo::allreduce_(strided, {.op = kolo::ReduceOp::kAverage});
  EXPECT_TRUE(torch::allclose(strided, torch::full({4, 3}, ranks_sum() / kolo::size())));
  EXPECT_EQ(kolo::allreduce(torch::tensor(2.0)).item<double>(), 2.0 * kolo::size());
  EXPECT_EQ(kolo::allreduce(torch::empty({0, 3})).numel(), 0);
  const auto scaled = kolo::allreduce(torch::ones({4}), {.prescale = 0.5, .postscale = 8.0});
  EXPECT_TRUE(torch::allclose(scaled, torch::full({4}, 4.0 * kolo::size())));
  const auto halves = kolo::allreduce(torch::tensor({3, -3}), {.prescale = 0.5});
  EXPECT_TRUE(torch::equal(halves, torch::tensor({1, -1}) * kolo::size()));
}

TEST(Functions, BroadcastFromEveryRoot) {
  for (int root = 0; root < kolo::size(); ++root) {
    const auto mine = torch::full({7}, kolo::rank(), torch::kInt64);
    EXPECT_TRUE(torch::equal(kolo::broadcast(mine, root), torch::full({7}, root, torch::kInt64)));
    EXPECT_TRUE(torch::equal(mine, torch::full({7}, kolo::rank(), torch::kInt64)));
  }
}

TEST(Functions, SeveralThreadsSubmit) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        const auto sum = kolo::allreduce(torch::ones({100}), {.name = std::to_string(t)});
        ASSERT_EQ(sum[99].item<double>(), kolo::size());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Functions, ErrorsNameTheTensor) {
  EXPECT_THAT(
      message_of([] { kolo::allreduce(torch::zeros({2}, torch::kFloat8_e4m3fn), {.name = "w"}); }),
      HasSubstr("tensor 'w': rank 0: the tensor has type Float8_e4m3fn"));
  EXPECT_THAT(message_of([] { kolo::allreduce(torch::eye(3).to_sparse(), {.name = "s"}); }),
              HasSubstr("tensor 's': rank 0: the tensor is sparse"));
  if (kolo::size() == 1) return;
  EXPECT_THAT(
      message_of([] { kolo::allreduce(torch::zeros({2 + kolo::rank()}), {.name = "odd"}); }),
      HasSubstr("tensor 'odd': rank 0 submitted shape [2], but rank 1 submitted shape [3]"));
  EXPECT_EQ(kolo::allreduce(torch::ones({})).item<double>(), kolo::size()) << "still usable";
}

TEST(Sampler, SharesAreDisjointAndCover) {
  for (const std::size_t count : {1U, 7U, 100U, 103U}) {
    for (const int size : {1, 2, 3, 7}) {
      std::multiset<std::size_t> seen;
      for (int rank = 0; rank < size; ++rank) {
        kolo::DistributedSampler sampler(count, {.seed = 3, .rank = rank, .size = size});
        EXPECT_EQ(sampler.num_samples(),
                  (count + static_cast<std::size_t>(size) - 1) / static_cast<std::size_t>(size));
        std::size_t drawn = 0;
        while (const auto batch = sampler.next(4)) {
          seen.insert(batch->begin(), batch->end());
          drawn += batch->size();
        }
        EXPECT_EQ(drawn, sampler.num_samples());
      }
      const std::set<std::size_t> distinct(seen.begin(), seen.end());
      EXPECT_EQ(distinct.size(), count);
      EXPECT_LT(seen.size() - count, static_cast<std::size_t>(size)) << "padding alone is twice";
    }
  }
}

TEST(Sampler, CopiesShareTheirState) {
  kolo::DistributedSampler sampler(50, {.rank = 0, .size = 1});
  kolo::DistributedSampler copy = sampler;
  const auto first = copy.next(50);
  sampler.set_epoch(1);
  copy.reset();
  const auto second = copy.next(50);
  EXPECT_NE(first, second);
  sampler.set_epoch(0);
  copy.reset();
  EXPECT_EQ(copy.next(50), first) << "an epoch's order is the same every time";
}

TEST(Sampler, AGlobalBatchIsTheSameAtAnyNumberOfRanks) {
  const auto batches_of = [](int size) {
    std::vector<std::set<std::size_t>> batches(4);
    for (int rank = 0; rank < size; ++rank) {
      kolo::DistributedSampler sampler(50,
                                       {.seed = 9, .global_batch = 16, .rank = rank, .size = size});
      for (auto& global : batches) {
        if (const auto batch = sampler.next(1)) global.insert(batch->begin(), batch->end());
      }
    }
    return batches;
  };
  const auto alone = batches_of(1);
  EXPECT_EQ(alone[0].size(), 16U);
  EXPECT_EQ(alone[3].size(), 2U);
  EXPECT_EQ(batches_of(3), alone);
  EXPECT_EQ(batches_of(4), alone);
}

torch::nn::Sequential small_network() {
  torch::manual_seed(5);
  torch::nn::Sequential network(torch::nn::Linear(6, 16), torch::nn::Tanh(),
                                torch::nn::Linear(16, 3));
  network->to(torch::kFloat64);
  return network;
}

/// Rows `rank`, `rank` + size, … of a batch that is the same on all ranks.
torch::Tensor rows_of_this_rank(const torch::Tensor& batch) {
  return batch.slice(0, kolo::rank(), batch.size(0), kolo::size());
}

TEST(Optimizer, EqualsOneProcessForFiftySteps) {
  auto network = small_network();
  auto alone = small_network();
  kolo::DistributedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-2),
                                       network->named_parameters());
  torch::optim::AdamW reference(alone->parameters(), 1e-2);
  torch::optim::StepLR schedule(optimizer, 10, 0.5);
  torch::optim::StepLR reference_schedule(reference, 10, 0.5);
  kolo::broadcast_parameters(*network, 0);
  for (int step = 0; step < 50; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + step));
    const auto input = torch::randn({12, 6}, torch::kFloat64);
    const auto target = torch::randn({12, 3}, torch::kFloat64);
    optimizer.zero_grad();
    auto loss =
        torch::mse_loss(network->forward(rows_of_this_rank(input)), rows_of_this_rank(target));
    loss.backward();
    optimizer.step();
    schedule.step();
    reference.zero_grad();
    auto whole = torch::mse_loss(alone->forward(input), target);
    whole.backward();
    reference.step();
    reference_schedule.step();
    const auto mean = kolo::allreduce(loss.detach(), {.op = kolo::ReduceOp::kAverage});
    if (12 % kolo::size() == 0) {
      ASSERT_NEAR(mean.item<double>(), whole.item<double>(), 1e-9) << "step " << step;
    }
  }
  if (12 % kolo::size() != 0) return;
  for (std::size_t i = 0; i < network->parameters().size(); ++i) {
    EXPECT_TRUE(torch::allclose(network->parameters()[i], alone->parameters()[i], 1e-7, 1e-9));
  }
}

TEST(Optimizer, CommunicationStartsBeforeBackwardEnds) {
  auto network = small_network();
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(network->parameters(), 0.1),
                                       network->named_parameters());
  std::size_t submitted_before_the_first_layer = 0;
  network->parameters()[0].register_hook(
      [&](const torch::Tensor&) { submitted_before_the_first_layer = optimizer.pending(); });
  network->forward(torch::ones({2, 6}, torch::kFloat64)).sum().backward();
  EXPECT_GE(submitted_before_the_first_layer, 2U) << "the last layer's weight and bias";
  EXPECT_EQ(optimizer.pending(), 0U) << "backward waits for them";
  optimizer.step();
}

TEST(Optimizer, PassesBeforeAStepAddUp) {
  auto weight = torch::ones({3}, torch::requires_grad());
  const kolo::NamedTensors named{{"w", weight}};
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({weight}, 1.0), named);
  const double scale = kolo::rank() + 1;
  const auto loss = (weight * scale).sum();
  loss.backward({}, /*retain_graph=*/true);
  loss.backward();
  optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(weight.grad(), torch::full({3}, 2 * ranks_sum() / kolo::size())));
  // Without zero_grad(), the next pass adds to the gradients, as in one process.
  (weight * scale).sum().backward();
  optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(weight.grad(), torch::full({3}, 3 * ranks_sum() / kolo::size())));
  optimizer.zero_grad();
  EXPECT_FALSE(weight.grad().defined());
}

TEST(Optimizer, AnUnusedParameterHangsNobodyAndStaysUntouched) {
  auto used = torch::ones({2}, torch::requires_grad());
  auto on_rank_0 = torch::ones({2}, torch::requires_grad());
  auto unused = torch::ones({2}, torch::requires_grad());
  const kolo::NamedTensors named{{"used", used}, {"on_rank_0", on_rank_0}, {"unused", unused}};
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({used, on_rank_0, unused}, 1.0), named);
  auto loss = used.sum();
  if (kolo::rank() == 0) loss = loss + on_rank_0.sum();
  loss.backward();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(used, torch::zeros({2})));
  EXPECT_TRUE(torch::allclose(on_rank_0, torch::full({2}, 1.0 - 1.0 / kolo::size())));
  EXPECT_FALSE(unused.grad().defined());
}

TEST(Optimizer, StepsWithAClosure) {
  auto weight = torch::full({1}, 4.0, torch::requires_grad());
  const kolo::NamedTensors named{{"w", weight}};
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({weight}, 1.0), named);
  optimizer.step([&] {
    optimizer.zero_grad();
    auto loss = (weight * (kolo::rank() + 1)).sum();
    loss.backward();
    return loss;
  });
  EXPECT_NEAR(weight.item<double>(), 4.0 - ranks_sum() / kolo::size(), 1e-6);
}

TEST(Optimizer, SavesLoadsAndGrows) {
  auto network = small_network();
  auto extra = torch::ones({2}, torch::TensorOptions(torch::kFloat64).requires_grad(true));
  kolo::DistributedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-2),
                                       network->named_parameters());
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({extra}));
  ASSERT_EQ(optimizer.param_groups().size(), 2U);
  ((network->forward(torch::ones({2, 6}, torch::kFloat64)).sum() + extra.sum()) *
   (kolo::rank() + 1))
      .backward();
  optimizer.step();
  EXPECT_TRUE(
      torch::allclose(extra.grad(), torch::full({2}, ranks_sum() / kolo::size(), torch::kFloat64)));
  std::stringstream stream;
  torch::save(optimizer, stream);
  torch::optim::AdamW plain(network->parameters(), 1e-2);
  plain.add_param_group(torch::optim::OptimizerParamGroup({extra}));
  torch::load(plain, stream);
  EXPECT_EQ(plain.state().size(), optimizer.state().size());
}

TEST(Optimizer, ParametersThatCameByTheBaseClassAreReduced) {
  const auto leaf = [] { return torch::ones({2}, torch::requires_grad()); };
  const std::vector<torch::Tensor> w{leaf(), leaf(), leaf()};
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({w[0]}, 1.0),
                                       kolo::NamedTensors{{"w", w[0]}});
  torch::optim::Optimizer& base = optimizer;
  base.add_param_group(Group({w[1]}));
  base.param_groups()[0].params().push_back(w[2]);
  for (int step = 1; step <= 2; ++step) {
    base.zero_grad();
    ((w[0].sum() + w[1].sum() + w[2].sum()) * (kolo::rank() + 1)).backward();
    base.step();
    for (const auto& weight : w) {
      EXPECT_TRUE(torch::allclose(weight, torch::full({2}, 1 - step * ranks_sum() / kolo::size())));
    }
  }
}

struct TwiceImpl : torch::nn::Module {
  torch::nn::Linear one{register_module("one", torch::nn::Linear(2, 1))};
  torch::nn::Linear other{register_module("other", one)};
  torch::Tensor forward(const torch::Tensor& input) { return one(input) + other(input); }
};
TORCH_MODULE(Twice);

TEST(Optimizer, AParameterOfTwoNamesIsOne) {
  Twice net;
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(net->one->parameters(), 0.5),
                                       net->named_parameters());
  net->forward(torch::full({1, 2}, kolo::rank() + 1.0)).sum().backward();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(net->one->weight.grad(),
                              torch::full({1, 2}, 2 * ranks_sum() / kolo::size())));
  Twice listed;
  EXPECT_THAT(message_of([&] {
                kolo::DistributedOptimizer second(torch::optim::SGD(listed->parameters(), 0.5),
                                                  listed->named_parameters());
              }),
              HasSubstr("lists 'one.weight' twice; list each parameter once"));
}

TEST(Optimizer, AScriptedModuleGoesByItsTensors) {
  torch::jit::Module module("Scaled");
  module.register_parameter("weight", torch::full({2}, kolo::rank() + 1.0, torch::requires_grad()),
                            /*is_buffer=*/false);
  module.define("def forward(self, x): return (self.weight * x).sum()\n");
  kolo::NamedTensors weights;
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : module.named_parameters()) {
    weights.emplace_back(parameter.name, parameter.value);
    parameters.push_back(parameter.value);
  }
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(parameters, 0.5), weights);
  kolo::broadcast_parameters(weights, 0);
  module.forward({torch::full({2}, kolo::rank() + 1.0)}).toTensor().backward();
  optimizer.step();
  EXPECT_TRUE(torch::allclose(module.attr("weight").toTensor(),
                              torch::full({2}, 1 - 0.5 * ranks_sum() / kolo::size())));
}

TEST(Optimizer, TwoOfThemAsInAGan) {
  auto generator = torch::ones({2}, torch::requires_grad());
  auto critic = torch::full({2}, 2.0, torch::requires_grad());
  kolo::DistributedOptimizer g(torch::optim::SGD({generator}, 0.5),
                               kolo::NamedTensors{{"w", generator}});
  kolo::DistributedOptimizer d(torch::optim::SGD({critic}, 0.5), kolo::NamedTensors{{"w", critic}});
  for (int i = 0; i < 3; ++i) {
    g.zero_grad();
    (generator * critic).sum().backward();  // reaches the critic, too
    g.step();
    d.zero_grad();  // drops the gradients that the generator's loss left there
    (critic * (kolo::rank() + 1)).sum().backward();
    d.step();
  }
  EXPECT_TRUE(torch::allclose(critic, torch::full({2}, 2.0 - 1.5 * ranks_sum() / kolo::size())));
}

TEST(Optimizer, MisuseIsNamed) {
  auto weight = torch::ones({2}, torch::requires_grad());
  auto other = torch::ones({2}, torch::requires_grad());
  const kolo::NamedTensors named{{"w", weight}};
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({weight}, 0.5), named);
  EXPECT_THAT(message_of([&] {
                kolo::DistributedOptimizer second(torch::optim::SGD({weight}, 0.5), named);
              }),
              HasSubstr("parameter 'w' is in another DistributedOptimizer"));
  EXPECT_THAT(message_of([&] {
                kolo::DistributedOptimizer second(torch::optim::SGD({other}, 0.5), named);
              }),
              HasSubstr("is not among the named parameters"));
  EXPECT_THAT(message_of([&] {
                const kolo::NamedTensors twice{{"x", other}, {"x", weight}};
                kolo::DistributedOptimizer second(torch::optim::SGD({other}, 0.5), twice);
              }),
              HasSubstr("two named parameters are called 'x'"));
  EXPECT_THAT(message_of([&] {
                kolo::DistributedOptimizer second(torch::optim::SGD({other, other}, 0.5),
                                                  kolo::NamedTensors{{"x", other}});
              }),
              HasSubstr("the optimizer lists 'x' twice; list each parameter once"));
  EXPECT_THAT(message_of([&] {
                optimizer.add_param_group(Group({other, other}));
              }),
              HasSubstr("twice, the second time as 'group1.parameter1'"));
  EXPECT_THAT(message_of([&] { optimizer.add_param_group(Group({weight})); }),
              HasSubstr("/w' twice, the second time as 'group1.parameter0'"));
  EXPECT_EQ(optimizer.param_groups().size(), 1U);
  using Optimizer = kolo::DistributedOptimizer<torch::optim::SGD>;
  static_assert(!std::is_constructible_v<Optimizer, torch::optim::SGD&, kolo::NamedTensors>);
}

TEST(BroadcastParameters, TakesParametersAndBuffers) {
  torch::nn::BatchNorm1d norm(4);
  const torch::NoGradGuard no_grad;
  norm->weight.fill_(kolo::rank());
  norm->running_mean.fill_(kolo::rank());
  kolo::broadcast_parameters(*norm, kolo::size() - 1);
  EXPECT_TRUE(torch::equal(norm->weight, torch::full({4}, kolo::size() - 1.0)));
  EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({4}, kolo::size() - 1.0)));
}

TEST(BroadcastParameters, TwoTensorsOfOneNameAreRefusedOnAllRanks) {
  kolo::NamedTensors both = torch::nn::Linear(2, 1)->named_parameters().pairs();
  for (auto& named : torch::nn::Linear(3, 1)->named_parameters().pairs()) both.push_back(named);
  EXPECT_THAT(message_of([&] { kolo::broadcast_parameters(both, 0); }),
              HasSubstr("two tensors are called 'weight'; call it once for each module"));
}

TEST(BroadcastParameters, ModulesThatDifferAreRefusedOnAllRanks) {
  if (kolo::size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const int last = kolo::size() - 1;
  kolo::NamedTensors tensors{{"a", torch::ones({1})}};
  if (kolo::rank() == last) tensors.emplace_back("b", torch::ones({1}));
  EXPECT_THAT(message_of([&] { kolo::broadcast_parameters(tensors, 0); }),
              HasSubstr("rank " + std::to_string(last) + " has a tensor 'b', and rank 0 has none"));
  tensors.resize(1);
  kolo::broadcast_parameters(tensors, 0);
}

TEST(DistributedOptimizer, WhatWasMovedAwaySaysSo) {
  torch::nn::Linear layer(2, 1);
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer(
      torch::optim::SGD(layer->parameters(), 0.1), layer->named_parameters());
  const auto kept = std::move(optimizer);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what is tested
  EXPECT_THAT(message_of([&] { optimizer.zero_grad(); }), HasSubstr("it was moved away"));
  EXPECT_EQ(kept.pending(), 0U);
}

TEST(ShardedOptimizer, WhatWasMovedAwaySaysSo) {
  torch::nn::Linear layer(2, 1);
  kolo::ShardedOptimizer<torch::optim::SGD> optimizer(torch::optim::SGD(layer->parameters(), 0.1),
                                                      layer->named_parameters());
  auto kept = std::move(optimizer);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what is tested
  EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("it was moved away"));
  EXPECT_THAT(message_of([&] { optimizer.zero_grad(); }), HasSubstr("it was moved away"));
  kept.step();
}

TEST(DistributedDataParallel, WhatWasMovedAwaySaysSo) {
  kolo::DistributedDataParallel ddp(torch::nn::Linear(2, 1).ptr());
  auto kept = std::move(ddp);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  EXPECT_THAT(message_of([&] { ddp.forward(torch::ones({1, 2})); }), HasSubstr("it has no module"));
  EXPECT_THAT(message_of([&] { const auto local = ddp.no_sync(); }), HasSubstr("it has no module"));
  EXPECT_THAT(message_of([&] { ddp.zero_grad(); }), HasSubstr("it has no module"));
  // NOLINTEND(bugprone-use-after-move)
  kept.forward(torch::ones({1, 2})).sum().backward();
  EXPECT_THAT(message_of([&] { kolo::DistributedDataParallel(torch::nn::Linear(nullptr)); }),
              HasSubstr("it has no module"));
}

TEST(TensorWork, WithoutAnOperationSaysSo) {
  kolo::TensorWork work = kolo::allreduce_async(torch::ones({2}), {.name = "moved"});
  kolo::TensorWork kept = std::move(work);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  EXPECT_THAT(message_of([&] { work.wait(); }), HasSubstr("it has no operation"));
  EXPECT_THAT(message_of([&] { kolo::poll(work); }), HasSubstr("it has no operation"));
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_EQ(kept.wait()[0].item<double>(), kolo::size());
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  torch::set_num_threads(1);
  const std::string before = message_of([] { kolo::rank(); });
  if (before.find("kolo::rank() was called before kolo::init()") == std::string::npos) return 2;
  kolo::init(argc, argv);
  return RUN_ALL_TESTS();
}
