// GradScaler, alone and under mpirun: every test runs on all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace {

using kolo::GradScaler;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::SGD;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_last() { return kolo::rank() == kolo::size() - 1; }

/// A parameter whose gradient is this rank's `factor`.
struct One {
  explicit One(torch::ScalarType type = torch::kFloat32)
      : weight(torch::ones({3}, type).requires_grad_()) {}
  torch::Tensor loss(double factor) const { return (weight * factor).sum(); }
  torch::Tensor weight;
};

TEST(GradScaler, TheStepIsThatWithoutAScale) {
  for (const bool unscale_first : {false, true}) {
    One one;
    kolo::DistributedOptimizer optimizer(SGD({one.weight}, 0.5),
                                         kolo::NamedTensors{{"weight", one.weight}});
    GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
    for (int step = 1; step <= 2; ++step) {
      optimizer.zero_grad();
      scaler.scale(one.loss(kolo::rank() + 1)).backward();
      if (unscale_first) {
        scaler.unscale_(optimizer);
        EXPECT_NEAR(one.weight.grad()[0].item<double>(), (kolo::size() + 1) / 2.0, 1e-6);
      }
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
      EXPECT_NEAR(one.weight[0].item<double>(), 1 - step * (kolo::size() + 1) / 4.0, 1e-6);
      EXPECT_EQ(scaler.scale_now(), step == 2 ? 2048 : 1024);
      EXPECT_EQ(scaler.growth_tracker(), step == 2 ? 0 : 1);
    }
  }
}

TEST(GradScaler, AParameterThatIsListedTwiceIsUnscaledOnce) {
  One one;
  SGD optimizer({one.weight, one.weight}, 0.5);
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(one.loss(3)).backward();
  scaler.unscale_(optimizer);
  EXPECT_EQ(one.weight.grad()[0].item<double>(), 3);
}

/// An overflow on one rank makes all ranks skip the step; gradients are summed in `type`.
void expect_left_out(double worst, torch::ScalarType type,
                     kolo::DistributedOptimizerOptions options) {
  SCOPED_TRACE(testing::Message() << worst << " in " << torch::toString(type));
  One one(type);
  kolo::DistributedOptimizer optimizer(SGD({one.weight}, 0.5),
                                       kolo::NamedTensors{{"weight", one.weight}}, options);
  GradScaler scaler({.init_scale = 8, .growth_interval = 1});
  scaler.scale(one.loss(is_last() ? worst : 1)).backward();
  EXPECT_FALSE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.scale_now(), 4);
  EXPECT_TRUE(torch::equal(one.weight.detach(), torch::ones({3}, type)));
  optimizer.zero_grad();
  const double share = options.op == kolo::ReduceOp::kSum ? 1.0 / kolo::size() : 1.0;
  scaler.scale(one.loss(share)).backward();
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.scale_now(), 8);
  EXPECT_TRUE(torch::allclose(one.weight.detach(), torch::full({3}, 0.5, type), 0, 0.01));
}

TEST(GradScaler, OneRanksOverflowIsEveryRanks) {
  for (const double worst : {kInfinity, -kInfinity, kNan}) {
    for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
      expect_left_out(worst, type, {});
      expect_left_out(worst, type, {.op = kolo::ReduceOp::kSum});
    }
    expect_left_out(worst, torch::kFloat32, {.compression = kolo::compression::bf16()});
  }
  // Finite on the rank, but not in float16.
  expect_left_out(1e6, torch::kFloat32, {.compression = kolo::compression::fp16()});
  expect_left_out(1e6, torch::kFloat32,
                  {.compression = kolo::compression::fp16_with_error_feedback()});
  if ((kolo::size() & (kolo::size() - 1)) == 0)
    expect_left_out(kInfinity, torch::kFloat32, {.op = kolo::ReduceOp::kAdasum});
}

TEST(GradScaler, WorksWithDistributedDataParallel) {
  for (const bool view : {false, true}) {
    kolo::DistributedDataParallel ddp(torch::nn::Linear(2, 1), {.gradient_as_bucket_view = view});
    SGD optimizer(ddp.parameters(), 0.1);
    GradScaler scaler({.init_scale = 8});
    const auto before = ddp.parameters()[0].clone();
    scaler.scale(ddp.forward(torch::full({1, 2}, is_last() ? kInfinity : 1.0)).sum()).backward();
    EXPECT_FALSE(scaler.step(optimizer));
    EXPECT_TRUE(torch::equal(ddp.parameters()[0], before));
    scaler.update();
    EXPECT_EQ(scaler.scale_now(), 4);
    ddp.zero_grad();
    scaler.scale(ddp.forward(torch::ones({1, 2})).sum()).backward();
    EXPECT_TRUE(scaler.step(optimizer));
    EXPECT_TRUE(torch::allclose(ddp.parameters()[0], before - 0.1));
  }
}

TEST(GradScaler, EqualsOneProcessForFiftySteps) {
  const auto network = [] {
    torch::manual_seed(5);
    torch::nn::Sequential made(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
    made->to(torch::kFloat64);
    return made;
  };
  auto alone = network();
  kolo::DistributedDataParallel ddp(network());
  torch::optim::AdamW optimizer(ddp.parameters(), 1e-2);
  torch::optim::AdamW reference(alone->parameters(), 1e-2);
  GradScaler scaler({.growth_interval = 10});
  int taken = 0;
  for (std::uint64_t step = 0; taken < 50; ++step) {
    torch::manual_seed(step);
    const auto input = torch::randn({12, 6}, torch::kFloat64);
    const auto share = input.slice(0, kolo::rank(), 12, kolo::size());
    // Every seventh step overflows on one rank and must have no effect.
    const double factor = step % 7 == 6 && is_last() ? kInfinity : 1.0;
    optimizer.zero_grad();
    scaler.scale(ddp.forward(share).square().mean() * factor).backward();
    const bool step_taken = scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(step_taken, step % 7 != 6);
    if (!step_taken) continue;
    ++taken;
    reference.zero_grad();
    alone->forward(input).square().mean().backward();
    reference.step();
  }
  EXPECT_EQ(scaler.scale_now(), 65536.0 / 256) << "eight overflows, never ten steps without";
  for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
    EXPECT_TRUE(torch::allclose(ddp.parameters()[i], alone->parameters()[i], 1e-8, 1e-10)) << i;
  }
}

TEST(GradScaler, AMinimumHidesAnInfinityOnEveryRankAlike) {
  if (kolo::size() == 1) return;
  One one;
  SGD optimizer({one.weight}, 1.0);
  GradScaler scaler({.init_scale = 1});
  scaler.scale(one.loss(is_last() ? kInfinity : 1)).backward();
  kolo::allreduce_(one.weight.grad(), {.op = kolo::ReduceOp::kMin, .name = "smallest"});
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_TRUE(torch::equal(one.weight.detach(), torch::zeros({3})));
}

TEST(GradScaler, RanksWithTheirOwnGradientsAgreeByAMessage) {
  for (const bool extra : {false, true}) {
    One one;
    SGD optimizer({one.weight}, 1.0);
    GradScaler scaler({.init_scale = 8, .extra_agreement = extra});
    scaler.scale(one.loss(is_last() ? kInfinity : 1)).backward();
    EXPECT_EQ(scaler.step(optimizer), !extra && !is_last());
    scaler.update();
    EXPECT_EQ(scaler.scale_now(), extra || is_last() ? 4 : 8);
  }
}

/// An optimizer that keeps a share of the gradients on each rank.
struct Sharing : SGD, kolo::ReducingOptimizer {
  using SGD::SGD;
  void synchronize() override { ++waits; }
  void skip_synchronize() override {}
  bool same_gradients_on_every_rank() const override { return false; }
  int waits = 0;
};

TEST(GradScaler, AsksAnOptimizerThatKeepsShares) {
  One one;
  Sharing optimizer({one.weight}, 1.0);
  GradScaler scaler;
  const torch::Tensor loss = scaler.scale(one.loss(is_last() ? kInfinity : 1));
  // The first rank's share has no gradient.
  if (kolo::rank() > 0 || kolo::size() == 1) loss.backward();
  torch::optim::Optimizer& as_any = optimizer;
  EXPECT_FALSE(scaler.step(as_any));
  EXPECT_EQ(optimizer.waits, 1);
}

/// A rank outside the optimizer's process set is not waited for.
TEST(GradScaler, AsksTheRanksOfTheOptimizersProcessSet) {
  std::vector<int> ranks;
  for (int r = 0; r == 0 || r < kolo::size() - 1; ++r) ranks.push_back(r);
  const bool alone = kolo::size() == 1;
  const kolo::ProcessSet set = alone ? kolo::ProcessSet() : kolo::add_process_set(ranks);
  if (kolo::rank() <= ranks.back()) {
    const auto leaves_out = [&](auto& optimizer, const One& one, GradScaler scaler) {
      const double factor = kolo::rank() == ranks.back() ? kInfinity : 1;
      scaler.scale(one.loss(factor)).backward();
      EXPECT_FALSE(scaler.step(optimizer));
      scaler.update();
      EXPECT_EQ(scaler.scale_now(), 4);
    };
    One one, other;
    kolo::ShardedOptimizer sharded(
        SGD({one.weight}, 0.5), kolo::NamedTensors{{"weight", one.weight}}, {.process_set = set});
    leaves_out(sharded, one, GradScaler({.init_scale = 8}));
    kolo::DistributedOptimizer distributed(SGD({other.weight}, 0.5),
                                           kolo::NamedTensors{{"weight", other.weight}},
                                           {.process_set = set});
    leaves_out(distributed, other, GradScaler({.init_scale = 8, .extra_agreement = true}));
  }
  kolo::barrier();
  if (!alone) kolo::remove_process_set(set);
}

TEST(GradScaler, SaysWhatIsWrong) {
  EXPECT_THAT(message_of([] { GradScaler({.init_scale = 0}); }),
              AllOf(HasSubstr("init_scale"), HasSubstr("0.0")));
  EXPECT_THAT(message_of([] { GradScaler({.init_scale = 1e39}); }), HasSubstr("init_scale"));
  EXPECT_THAT(message_of([] { GradScaler({.growth_factor = 1}); }), HasSubstr("growth_factor"));
  EXPECT_THAT(message_of([] { GradScaler({.backoff_factor = 1}); }), HasSubstr("backoff_factor"));
  EXPECT_THAT(message_of([] { GradScaler({.growth_interval = 0}); }), HasSubstr("growth_interval"));
  One one;
  SGD optimizer({one.weight}, 1.0);
  GradScaler scaler;
  const auto is_refused =
      AllOf(HasSubstr("no loss was scaled"), HasSubstr("scale(loss).backward()"));
  one.loss(1).backward();
  EXPECT_THAT(message_of([&] { scaler.step(optimizer); }), is_refused);
  EXPECT_THAT(message_of([&] { scaler.unscale_(optimizer); }), is_refused);
  EXPECT_EQ(one.weight.grad()[0].item<double>(), 1);
  EXPECT_EQ(one.weight[0].item<double>(), 1);
  optimizer.zero_grad();
  scaler.scale(one.loss(1));
  EXPECT_THAT(message_of([&] { scaler.unscale_(optimizer); }), HasSubstr("after backward()"));
  EXPECT_THAT(message_of([&] { scaler.update(); }), HasSubstr("without a step()"));
  EXPECT_THAT(message_of([&] { scaler.update(-1); }), HasSubstr("update(-1"));
  scaler.scale(one.loss(1)).backward();
  scaler.unscale_(optimizer);
  EXPECT_THAT(message_of([&] { scaler.unscale_(optimizer); }), HasSubstr("a second time"));
  scaler.step(optimizer);
  EXPECT_THAT(message_of([&] { scaler.unscale_(optimizer); }), HasSubstr("after step()"));
  EXPECT_THAT(message_of([&] { scaler.step(optimizer); }), HasSubstr("step() a second time"));
  One half(torch::kFloat16);
  half.weight.mutable_grad() = torch::ones({3}, torch::kFloat16);
  SGD wrong(std::vector<torch::Tensor>{one.weight, half.weight}, 1.0);
  EXPECT_THAT(message_of([&] { scaler.unscale_(wrong); }),
              AllOf(HasSubstr("parameter 1 of group 0"), HasSubstr("kolo::Autocast")));
}

TEST(GradScaler, DisabledItIsNotThere) {
  One one;
  SGD optimizer({one.weight}, 1.0);
  GradScaler scaler({.enabled = false});
  scaler.scale(one.loss(kInfinity)).backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_EQ(scaler.scale_now(), 1);
  EXPECT_FALSE(torch::isfinite(one.weight).any().item<bool>());
}

TEST(GradScaler, GoesOnFromAFile) {
  GradScaler scaler({.init_scale = 32, .growth_factor = 4, .growth_interval = 2});
  One one;
  SGD optimizer({one.weight}, 1.0);
  scaler.scale(one.loss(1)).backward();
  scaler.step(optimizer);
  scaler.update();
  std::stringstream stream;
  torch::save(scaler, stream);
  GradScaler other;
  torch::load(other, stream);
  EXPECT_EQ(other.scale_now(), 32);
  EXPECT_EQ(other.growth_tracker(), 1);
  optimizer.zero_grad();
  other.scale(one.loss(1)).backward();
  other.step(optimizer);
  other.update();
  EXPECT_EQ(other.scale_now(), 128);
}

TEST(GradScaler, AnUpdateThatIsPutOff) {
  One one;
  SGD optimizer({one.weight}, 1.0);
  GradScaler scaler({.init_scale = 32}), other;
  EXPECT_THAT(message_of([&] { scaler.update_later(); }), HasSubstr("without a step()"));
  const auto overflow = [&] {
    optimizer.zero_grad();
    scaler.scale(one.loss(kInfinity)).backward();
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update_later();
  };
  overflow();
  EXPECT_EQ(scaler.scale_now(), 32);
  std::stringstream stream;
  torch::save(scaler, stream);
  torch::load(other, stream);
  EXPECT_EQ(other.scale_now(), 16) << "what it goes on with";
  overflow();
  EXPECT_EQ(scaler.scale_now(), 16) << "that of the last loss";
  stream.seekg(0);
  torch::load(scaler, stream);
  overflow();
  EXPECT_EQ(scaler.scale_now(), 16) << "loaded, there is nothing to update";
  scaler.update();
  overflow();
  EXPECT_EQ(scaler.scale_now(), 8);
}

TEST(GradScaler, TakesSparseGradientsAndHalfLosses) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true));
  SGD optimizer(embedding->parameters(), 1.0);
  GradScaler scaler({.init_scale = 4});
  const auto before = embedding->weight.detach().clone();
  // Two entries of one row: each is finite, but the sum is not.
  scaler.scale(embedding(torch::tensor({1, 1})).sum()).backward();
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_TRUE(torch::allclose(before[1] - embedding->weight[1], torch::full({1}, 2.0)));
  const auto scaled = GradScaler().scale(torch::ones({}, torch::kFloat16));
  EXPECT_EQ(scaled.item<double>(), 65536);
}

}  // namespace
