// DistributedDataParallel, alone and under mpirun: every test runs on all ranks at once.
#include "tests/support/ddp_ranks.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::test::mean_of_ranks;
using kolo::test::message_of;
using kolo::test::mine;
using testing::AllOf;
using testing::HasSubstr;

torch::nn::Sequential small_network() {
  torch::nn::Sequential network(torch::nn::Linear(6, 16), torch::nn::Tanh(),
                                torch::nn::Linear(16, 3));
  network->to(torch::kFloat64);
  return network;
}

/// Two layers; each call says which of them it uses.
struct BranchesImpl : torch::nn::Module {
  torch::nn::Linear left{register_module("left", torch::nn::Linear(2, 1))};
  torch::nn::Linear right{register_module("right", torch::nn::Linear(2, 1))};
  std::tuple<torch::Tensor, std::vector<torch::Tensor>> forward(const torch::Tensor& input,
                                                                bool use_left, bool use_right) {
    torch::Tensor sum = torch::zeros({1});
    if (use_left) sum = sum + left(input).sum();
    if (use_right) sum = sum + right(input).sum();
    return {input, {sum}};
  }
};
TORCH_MODULE(Branches);

torch::Tensor loss_of(DistributedDataParallel<Branches>& ddp, bool left, bool right) {
  return std::get<1>(ddp.forward(torch::ones({1, 2}), left, right))[0].sum() * mine();
}

template <class Optimizer>
void equals_one_process(const DdpOptions& options, bool hook, bool set_to_none) {
  torch::manual_seed(5);
  auto alone = small_network();
  torch::manual_seed(static_cast<std::uint64_t>(5 + kolo::rank()));
  DistributedDataParallel ddp(small_network(), options);
  if (hook) {
    ddp.register_comm_hook([](const kolo::GradBucket& bucket) {
      auto work = kolo::allreduce_async_(bucket.buffer, {.name = bucket.name});
      return [work]() mutable { return work.wait() / kolo::size(); };
    });
  }
  typename std::conditional_t<std::is_same_v<Optimizer, torch::optim::SGD>,
                              torch::optim::SGDOptions, torch::optim::AdamWOptions>
      settings(1e-2);
  if constexpr (std::is_same_v<Optimizer, torch::optim::SGD>) settings.momentum(0.9);
  Optimizer optimizer(ddp.parameters(), settings);
  Optimizer reference(alone->parameters(), settings);
  for (int step = 0; step < 50; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + step));
    const auto input = torch::randn({12, 6}, torch::kFloat64);
    const auto target = torch::randn({12, 3}, torch::kFloat64);
    const auto share = [](const torch::Tensor& batch) {
      return batch.slice(0, kolo::rank(), batch.size(0), kolo::size());
    };
    optimizer.zero_grad(set_to_none);
    torch::mse_loss(ddp.forward(share(input)), share(target)).backward();
    optimizer.step();
    reference.zero_grad();
    torch::mse_loss(alone->forward(input), target).backward();
    reference.step();
  }
  for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
    EXPECT_TRUE(torch::allclose(ddp.parameters()[i], alone->parameters()[i], 1e-8, 1e-10)) << i;
  }
  EXPECT_EQ(ddp.stats().synchronized_backwards, 50);
  EXPECT_EQ(ddp.stats().rebuilds, options.find_unused_parameters ? 0 : 1);
}

TEST(Ddp, EqualsOneProcessForFiftySteps) {
  for (const bool view : {false, true}) {
    for (const bool set_to_none : {false, true}) {
      SCOPED_TRACE(testing::Message() << "view " << view << ", set_to_none " << set_to_none);
      const DdpOptions options{.gradient_as_bucket_view = view};
      equals_one_process<torch::optim::SGD>(options, false, set_to_none);
      equals_one_process<torch::optim::AdamW>(options, false, set_to_none);
    }
  }
}

TEST(Ddp, EqualsOneProcessWithEveryOption) {
  // 100 bytes per bucket gives several buckets.
  equals_one_process<torch::optim::AdamW>({.bucket_cap_mb = 1e-4, .gradient_as_bucket_view = true},
                                          false, true);
  equals_one_process<torch::optim::AdamW>({.bucket_cap_mb = 1e-4}, true, true);
  equals_one_process<torch::optim::AdamW>({.gradient_as_bucket_view = true}, true, false);
  equals_one_process<torch::optim::SGD>({.find_unused_parameters = true}, false, true);
  equals_one_process<torch::optim::SGD>({.static_graph = true}, false, true);
}

TEST(Ddp, NoSyncAccumulatesOnThisRank) {
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(torch::nn::Linear(2, 1), {.gradient_as_bucket_view = view});
    const auto input = torch::full({1, 2}, mine());
    {
      const auto guard = ddp.no_sync();
      ddp.forward(input).sum().backward();
    }
    EXPECT_TRUE(torch::allclose(ddp.module()->weight.grad(), torch::full({1, 2}, mine())));
    EXPECT_EQ(ddp.stats().synchronized_backwards, 0);
    ddp.forward(input).sum().backward();
    const auto expected = torch::full({1, 2}, 2 * mean_of_ranks());
    EXPECT_TRUE(torch::allclose(ddp.module()->weight.grad(), expected));
    // Another backward adds to the gradients.
    ddp.forward(input).sum().backward();
    EXPECT_TRUE(torch::allclose(ddp.module()->weight.grad(), 1.5 * expected));
  }
}

TEST(Ddp, GradientsWithoutViewsStayWhereTheUserHasPutThem) {
  DistributedDataParallel ddp(torch::nn::Linear(2, 1), {.gradient_as_bucket_view = false});
  torch::Tensor flat = torch::zeros({3});
  ddp.module()->weight.mutable_grad() = flat.narrow(0, 0, 2).view({1, 2});
  ddp.module()->bias.mutable_grad() = flat.narrow(0, 2, 1);
  for (int step = 0; step < 3; ++step) {
    flat.zero_();
    ddp.forward(torch::full({1, 2}, mine())).sum().backward();
    EXPECT_TRUE(torch::allclose(
        flat, torch::tensor({mean_of_ranks(), mean_of_ranks(), 1.0}, torch::kFloat32)));
  }
}

TEST(Ddp, NoSyncCountsWhereAllForwardsOfABackwardRanInsideIt) {
  for (const bool finds_unused : {false, true}) {
    DistributedDataParallel ddp(torch::nn::Linear(2, 1), {.find_unused_parameters = finds_unused});
    const auto input = torch::full({1, 2}, mine());
    const auto first = ddp.forward(input).sum();
    torch::Tensor second;
    {
      const auto guard = ddp.no_sync();
      second = ddp.forward(input).sum();
    }
    (first + second).backward();
    EXPECT_EQ(ddp.stats().synchronized_backwards, 1);
    const auto expected = torch::full({1, 2}, 2 * mean_of_ranks());
    EXPECT_TRUE(torch::allclose(ddp.module()->weight.grad(), expected));
    ddp.zero_grad();
    // As in gradient accumulation.
    for (int pass = 0; pass < 2; ++pass) {
      std::optional<kolo::NoSync> local;
      if (pass < 1) local.emplace(ddp.no_sync());
      ddp.forward(input).sum().backward();
    }
    EXPECT_EQ(ddp.stats().synchronized_backwards, 2);
    EXPECT_TRUE(torch::allclose(ddp.module()->weight.grad(), expected));
  }
}

TEST(Ddp, AMissingGradientIsNamedOnEveryRank) {
  const int last = kolo::size() - 1;
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(Branches(), {.gradient_as_bucket_view = view});
    EXPECT_THAT(message_of([&] { loss_of(ddp, true, kolo::rank() != last).backward(); }),
                AllOf(HasSubstr("parameter 'right.weight' on rank " + std::to_string(last) + ";"),
                      HasSubstr("'right.bias'"), HasSubstr("find_unused_parameters")));
    ddp.zero_grad();
    loss_of(ddp, true, true).backward();
    EXPECT_NEAR(ddp.module()->right->weight.grad()[0][0].item<double>(), mean_of_ranks(), 1e-5);
  }
}

/// One layer under two names.
struct TwiceImpl : torch::nn::Module {
  torch::nn::Linear one{register_module("one", torch::nn::Linear(2, 1))};
  torch::nn::Linear other{register_module("other", one)};
  torch::Tensor forward(const torch::Tensor& input) { return one(input) + other(input); }
};
TORCH_MODULE(Twice);

TEST(Ddp, AParameterOfTwoNamesIsOne) {
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(Twice(), {.bucket_cap_mb = 1e-6, .gradient_as_bucket_view = view});
    ddp.forward(torch::full({1, 2}, mine())).sum().backward();
    EXPECT_TRUE(torch::allclose(ddp.module()->one->weight.grad(),
                                torch::full({1, 2}, 2 * mean_of_ranks())));
  }
}

TEST(Ddp, UnusedParametersAreFound) {
  for (const bool view : {false, true}) {
    for (const bool is_static : {false, true}) {
      DistributedDataParallel ddp(Branches(), {.find_unused_parameters = true,
                                               .gradient_as_bucket_view = view,
                                               .static_graph = is_static});
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        loss_of(ddp, true, kolo::rank() == 0).backward();
        EXPECT_NEAR(ddp.module()->left->weight.grad()[0][0].item<double>(), mean_of_ranks(), 1e-5);
        EXPECT_NEAR(ddp.module()->right->weight.grad()[0][0].item<double>(), 1.0 / kolo::size(),
                    1e-5);
      }
    }
  }
}

TEST(Ddp, UnusedOnAllRanksStaysUntouched) {
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(Branches(),
                                {.find_unused_parameters = true, .gradient_as_bucket_view = view});
    loss_of(ddp, true, false).backward();
    EXPECT_FALSE(ddp.module()->right->weight.grad().defined());
    ddp.module()->right->weight.mutable_grad() = torch::full({1, 2}, 0.1 + kolo::rank());
    loss_of(ddp, true, false).backward();
    EXPECT_TRUE(
        torch::equal(ddp.module()->right->weight.grad(), torch::full({1, 2}, 0.1 + kolo::rank())));
  }
}

TEST(Ddp, WhatZeroGradHasForgottenIsUnused) {
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(Branches(),
                                {.find_unused_parameters = true, .gradient_as_bucket_view = view});
    {
      const auto guard = ddp.no_sync();
      loss_of(ddp, true, true).backward();
    }
    ddp.zero_grad();
    loss_of(ddp, true, false).backward();
    EXPECT_FALSE(ddp.module()->right->weight.grad().defined());
    EXPECT_NEAR(ddp.module()->left->weight.grad()[0][0].item<double>(), mean_of_ranks(), 1e-5);
  }
}

TEST(Ddp, AModuleThatIsConvertedLaterIsRefused) {
  torch::nn::Linear layer(2, 2);
  DistributedDataParallel ddp(layer);
  layer->to(torch::kFloat64);
  EXPECT_THAT(message_of([&] {
                ddp.forward(torch::ones({1, 2}, torch::kFloat64));
              }),
              HasSubstr("is Double [2, 2] on cpu, but was Float [2, 2] on cpu when"));
}

TEST(Ddp, AStaticGraphThatChangesIsAnError) {
  DistributedDataParallel ddp(Branches(), {.static_graph = true});
  loss_of(ddp, true, true).backward();
  EXPECT_THAT(message_of([&] { loss_of(ddp, false, true).backward(); }),
              HasSubstr("parameter 'left.weight'"));
}

TEST(Ddp, EvaluationIsSilent) {
  DistributedDataParallel ddp(torch::nn::BatchNorm1d(4));
  if (kolo::rank() == 0) {
    ddp.eval();
    ddp->forward(torch::ones({2, 4}));
    ddp.train();
    const torch::NoGradGuard no_grad;
    ddp->forward(torch::ones({2, 4}));
    ddp(torch::ones({2, 4}));
  }
  ddp(torch::randn({2, 4})).sum().backward();
  EXPECT_EQ(ddp.stats().synchronized_backwards, 1);
}

TEST(Ddp, BuffersFollowRankZero) {
  DistributedDataParallel ddp(torch::nn::BatchNorm1d(4));
  ddp.module()->running_mean.fill_(mine());
  ddp.module()->num_batches_tracked.fill_(kolo::rank() + 7);
  ddp.forward(torch::zeros({2, 4})).sum().backward();
  EXPECT_TRUE(torch::allclose(ddp.module()->running_mean, torch::full({4}, 0.9)));
  EXPECT_EQ(ddp.module()->num_batches_tracked.item<std::int64_t>(), 8);
}

TEST(Ddp, ModulesThatDifferAreRefusedEverywhere) {
  const auto made = [](auto module, const DdpOptions& options = {}) {
    return message_of([&] { DistributedDataParallel ddp(module, options); });
  };
  EXPECT_THAT(made(small_network(), {.device_ids = {torch::Device("cuda:1")}}),
              AllOf(HasSubstr("cuda:1"), HasSubstr("cpu")));
  EXPECT_THAT(made(small_network(), {.output_device = torch::Device("cuda:0")}),
              AllOf(HasSubstr("output_device is cuda:0"), HasSubstr("cpu")));
  EXPECT_EQ(made(small_network(), {.device_ids = {torch::Device("cpu")}}), "(no error)");
  if (kolo::size() > 1) {
    const int last = kolo::size() - 1;
    const std::string who = "rank " + std::to_string(last);
    const bool odd = kolo::rank() == last;
    EXPECT_THAT(made(torch::nn::Linear(3, odd ? 5 : 4)),
                AllOf(HasSubstr("'weight'"), HasSubstr("[4, 3]"), HasSubstr("[5, 3]"),
                      HasSubstr("on rank 0"), HasSubstr(who)));
    EXPECT_THAT(made(torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(!odd))),
                AllOf(HasSubstr("'bias'"), HasSubstr(who + " lacks")));
    try {
      DistributedDataParallel ddp(torch::nn::Linear(3, odd ? 5 : 4));
      FAIL() << "no error";
    } catch (const kolo::Exception& error) {
      EXPECT_EQ(error.code(), kolo::ErrorCode::kMismatch);
    }
    torch::nn::Linear typed(3, 4);
    if (odd) typed->to(torch::kFloat64);
    EXPECT_THAT(made(typed), AllOf(HasSubstr("Float"), HasSubstr("Double"), HasSubstr(who)));
    EXPECT_THAT(made(torch::nn::Linear(3, 4), {.bucket_cap_mb = odd ? -1.0 : 1.0}),
                HasSubstr("bucket_cap_mb"));
    EXPECT_THAT(
        made(torch::nn::Linear(3, 4), {.find_unused_parameters = odd}),
        HasSubstr("option 'find_unused_parameters' is false on rank 0, but true on " + who));
    EXPECT_THAT(
        made(torch::nn::Linear(3, 4), {.gradient_as_bucket_view = !odd}),
        HasSubstr("option 'gradient_as_bucket_view' is true on rank 0, but false on " + who));
  }
  EXPECT_EQ(kolo::allreduce(torch::ones({})).item<double>(), kolo::size()) << "still usable";
}

TEST(Ddp, MemoryOfSeveralElementsIsRefusedEverywhere) {
  struct Net : torch::nn::Module {
    Net() {
      register_parameter("weight", torch::ones({4}));
      register_buffer("mask", torch::ones({1}).expand({4}));
    }
    torch::Tensor forward(const torch::Tensor& input) { return input; }
  };
  EXPECT_THAT(message_of([] { DistributedDataParallel ddp(std::make_shared<Net>()); }),
              HasSubstr("'mask' has several elements in one place of memory"));
}

TEST(Ddp, ABucketMayBeWithoutBound) {
  const double cap = std::numeric_limits<double>::infinity();
  DistributedDataParallel ddp(small_network(), {.bucket_cap_mb = cap});
  EXPECT_EQ(ddp.stats().buckets, 1);
}

TEST(Ddp, OneOwnerPerParameter) {
  DistributedDataParallel ddp(torch::nn::Linear(2, 1));
  EXPECT_THAT(message_of([&] { DistributedDataParallel twice(ddp.module()); }),
              HasSubstr("parameter 'weight' is reduced as"));
}

TEST(Ddp, NamesAndFilesAreTheModules) {
  DistributedDataParallel ddp(small_network());
  EXPECT_EQ(ddp->named_parameters().keys(), ddp.module()->named_parameters().keys());
  EXPECT_EQ(ddp->named_parameters().keys()[0], "0.weight");
  std::stringstream stream;
  torch::save(ddp.module(), stream);
  auto plain = small_network();
  torch::load(plain, stream);
  EXPECT_TRUE(torch::equal(plain->parameters()[0], ddp.parameters()[0]));
}

TEST(Ddp, ViewsAreTheDefaultStayInTheBucketAndAreCounted) {
  DistributedDataParallel ddp(small_network());
  const auto input = torch::ones({2, 6}, torch::kFloat64);
  ddp.forward(input).sum().backward();  // the buckets are rebuilt after this one
  const auto first = ddp.stats();
  EXPECT_EQ(first.copied_bytes, first.bucket_bytes_written);
  ddp.zero_grad(false);
  const auto* const memory = ddp.parameters()[0].grad().const_data_ptr();
  ddp.forward(input).sum().backward();
  const auto second = ddp.stats();
  EXPECT_EQ(second.copied_bytes, first.copied_bytes) << "added to in place";
  EXPECT_EQ(second.bucket_bytes_written, 2 * first.bucket_bytes_written);
  EXPECT_EQ(ddp.parameters()[0].grad().const_data_ptr(), memory);
  EXPECT_FALSE(ddp.parameters()[0].grad().is_view());
  ddp.zero_grad(true);
  ddp.forward(input).sum().backward();
  EXPECT_EQ(ddp.stats().copied_bytes, 2 * first.copied_bytes);
  EXPECT_EQ(ddp.parameters()[0].grad().const_data_ptr(), memory);
}

TEST(Ddp, OtherStridesAreCopiedIn) {
  for (const bool view : {false, true}) {
    torch::nn::Conv2d convolution(3, 4, 3);
    convolution->weight.set_data(
        convolution->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
    DistributedDataParallel ddp(convolution, {.gradient_as_bucket_view = view});
    const auto input = torch::arange(75.0).view({1, 3, 5, 5});
    const auto expected =
        torch::autograd::grad({convolution(input).sum()}, {convolution->weight})[0] *
        mean_of_ranks();
    for (int pass = 0; pass < 3; ++pass) {
      ddp.zero_grad(pass == 2);
      (ddp.forward(input).sum() * mine()).backward();
      EXPECT_TRUE(torch::allclose(convolution->weight.grad(), expected)) << pass;
      // In the same memory, transposed.
      auto turned = convolution->weight.grad().transpose(0, 0).permute({0, 1, 3, 2});
      convolution->weight.mutable_grad() = turned.detach();
      (ddp.forward(input).sum() * mine()).backward();
      EXPECT_TRUE(
          torch::allclose(convolution->weight.grad(), expected + expected.permute({0, 1, 3, 2})))
          << pass;
    }
  }
}

TEST(Ddp, TwoModulesAsInAGan) {
  for (const bool view : {false, true}) {
    const DdpOptions options{.gradient_as_bucket_view = view};
    torch::nn::LinearOptions plain(1, 1);
    plain.bias(false);
    DistributedDataParallel generator(torch::nn::Linear(plain), options);
    DistributedDataParallel critic(torch::nn::Linear(plain), options);
    const torch::Tensor& weight = critic.module()->weight;
    for (int step = 0; step < 3; ++step) {
      critic.zero_grad();
      const auto fake = generator(torch::ones({1, 1}));
      critic(fake).sum().backward();  // reaches both
      EXPECT_TRUE(torch::allclose(generator.module()->weight.grad(), weight));
      critic.zero_grad();
      generator.zero_grad();
      const auto real = torch::full({1, 1}, mine());
      (critic(real).sum() + critic(fake.detach()).sum()).backward();
      EXPECT_NEAR(weight.grad().item<double>(), mean_of_ranks() + fake.item<double>(), 1e-5);
    }
  }
}

TEST(Ddp, TakesBfloat16) {
  torch::nn::Linear layer(4, 4);
  layer->to(torch::kBFloat16);
  DistributedDataParallel ddp(layer);
  ddp.forward(torch::full({1, 4}, mine(), torch::kBFloat16)).sum().backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kBFloat16);
  EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), mean_of_ranks(), 0.02);
}

/// Kolo has aborted after it, so tests/torch.cmake runs it by itself.
TEST(DdpEnd, DISABLED_AHookThatThrowsOnOneRankEndsOnAll) {
  DistributedDataParallel ddp(small_network());
  ddp.register_comm_hook([](const kolo::GradBucket& bucket) {
    if (kolo::rank() + 1 == kolo::size()) throw std::runtime_error("no compression today");
    auto work = kolo::allreduce_async_(bucket.buffer, {.name = bucket.name});
    return [work]() mutable { return work.wait(); };
  });
  EXPECT_THAT(message_of([&] {
                ddp.forward(torch::ones({1, 6}, torch::kFloat64)).sum().backward();
              }),
              HasSubstr("no compression today"));
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  torch::set_num_threads(1);
  kolo::init(argc, argv);
  return RUN_ALL_TESTS();
}
