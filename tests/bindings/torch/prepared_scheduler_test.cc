// When the Accelerator's scheduler steps. On all ranks at once.
#include "tests/bindings/torch/accelerator_network.h"

#include <kolo/torch.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

using kolo::test::batch_of;
using kolo::test::make_network;

TEST(Accelerator, EachOptimizerSaysWhetherItsStepWasSkipped) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.mixed_precision = "fp16"},
                                {.scaler = {.init_scale = 1024}});
  auto network = make_network();
  const auto all = network->parameters();
  torch::optim::SGD first({all[0]}, 0.05);
  torch::optim::SGD second({all[1]}, 0.05);
  kolo::StepLR schedule(first, 1, 0.5);
  auto [model, one, other, scheduler] = accelerator.prepare(network, first, second, schedule);
  accelerator.backward(model.forward(batch_of(0, kolo::rank())).square().mean());
  all[0].mutable_grad().fill_(std::numeric_limits<float>::infinity());
  auto copy = one;
  one.step();
  other.step();
  for (int i = 0; i < 2; ++i) scheduler.step();  // the very first step changes nothing
  EXPECT_TRUE(one.step_was_skipped());
  EXPECT_TRUE(copy.step_was_skipped());
  EXPECT_FALSE(other.step_was_skipped());
  EXPECT_EQ(one.param_groups()[0].options().get_lr(), 0.05);
  // The second optimizer steps alone; the schedule, which belongs to the first, does not.
  accelerator.backward(model.forward(batch_of(1, kolo::rank())).square().mean());
  other.step();
  for (int i = 0; i < 2; ++i) scheduler.step();
  EXPECT_EQ(one.param_groups()[0].options().get_lr(), 0.05);
}

double rate_of(const torch::optim::Optimizer& optimizer) {
  return optimizer.param_groups()[0].options().get_lr();
}

/// Two networks, each with an optimizer and a schedule that halves the rate at each step of one
/// process.
struct Pair {
  explicit Pair(const kolo::AcceleratorConfig& config)
      : accelerator(config, {.scaler = {.init_scale = 1024}}) {
    // LibTorch's first step changes nothing.
    one_rate.step();
    other_rate.step();
  }
  torch::Tensor loss(kolo::PreparedModel<torch::nn::Sequential>& model, double factor = 1) {
    return model(batch_of(1, kolo::rank())).square().mean() * factor;
  }
  /// A pass of one model.
  void turn(kolo::PreparedModel<torch::nn::Sequential>& model,
            kolo::PreparedOptimizer<torch::optim::SGD>& optimizer) {
    const auto pass = accelerator.accumulate(model);
    accelerator.backward(loss(model));
    optimizer.step();
    optimizer.zero_grad();
  }
  /// The rate after every process has made so many steps.
  static double after(int steps) { return std::pow(0.5, steps * kolo::size()); }

  kolo::Accelerator accelerator;
  torch::nn::Sequential one_network = make_network(), other_network = make_network();
  torch::optim::SGD first{one_network->parameters(), 1.0}, second{other_network->parameters(), 1.0};
  torch::optim::StepLR one_rate{first, 1, 0.5}, other_rate{second, 1, 0.5};
  kolo::PreparedModel<torch::nn::Sequential> one = accelerator.prepare(one_network);
  kolo::PreparedModel<torch::nn::Sequential> other = accelerator.prepare(other_network);
  kolo::PreparedScheduler<torch::optim::StepLR> one_schedule = accelerator.prepare(one_rate);
  kolo::PreparedScheduler<torch::optim::StepLR> other_schedule = accelerator.prepare(other_rate);
  kolo::PreparedOptimizer<torch::optim::SGD> one_steps = accelerator.prepare(first);
  kolo::PreparedOptimizer<torch::optim::SGD> other_steps = accelerator.prepare(second);
};

TEST(Accelerator, AScheduleStaysWhereItsOwnOptimizersStepWasSkipped) {
  Pair pair({.mixed_precision = "fp16"});
  // Another model's backward and step come between.
  pair.accelerator.backward(pair.loss(pair.one, 1e38));
  pair.one_steps.step();
  pair.accelerator.backward(pair.loss(pair.other));
  pair.other_steps.step();
  EXPECT_TRUE(pair.one_steps.step_was_skipped());
  EXPECT_FALSE(pair.other_steps.step_was_skipped());
  pair.one_schedule.step();
  pair.other_schedule.step();
  EXPECT_EQ(rate_of(pair.first), 1);
  EXPECT_EQ(rate_of(pair.second), Pair::after(1));
  // The other order.
  pair.one_steps.zero_grad();
  pair.other_steps.zero_grad();
  pair.accelerator.backward(pair.loss(pair.one));
  pair.one_steps.step();
  pair.accelerator.backward(pair.loss(pair.other, 1e38));
  pair.other_steps.step();
  pair.other_schedule.step();
  pair.one_schedule.step();
  EXPECT_EQ(rate_of(pair.first), Pair::after(1));
  EXPECT_EQ(rate_of(pair.second), Pair::after(1));
}

TEST(Accelerator, AScheduleGoesOnByTheStepsOfItsOwnOptimizerAlone) {
  Pair pair({.gradient_accumulation_steps = 3});
  // The third, sixth, … of all passes step: the second and fifth pass of the first model, the third
  // and sixth of the other.
  const int steps[] = {0, 1, 1, 1, 2, 2}, others[] = {0, 0, 1, 1, 1, 2};
  for (int i = 0; i < 6; ++i) {
    pair.turn(pair.one, pair.one_steps);
    pair.turn(pair.other, pair.other_steps);
    pair.one_schedule.step();
    pair.other_schedule.step();
    EXPECT_EQ(rate_of(pair.first), Pair::after(steps[i])) << i;
    EXPECT_EQ(rate_of(pair.second), Pair::after(others[i])) << i;
  }
}

TEST(Accelerator, AScheduleStaysWhereItsOwnOptimizerHasOnlyAddedUp) {
  Pair pair({.gradient_accumulation_steps = 2});
  for (int i = 0; i < 3; ++i) {
    pair.turn(pair.one, pair.one_steps);
    pair.turn(pair.other, pair.other_steps);  // the pass that steps, each time
    pair.one_schedule.step();
    pair.other_schedule.step();
    EXPECT_EQ(rate_of(pair.first), 1) << i;
    EXPECT_EQ(rate_of(pair.second), Pair::after(i + 1)) << i;
  }
}

TEST(Accelerator, AScheduleIsNotTakenOnByABackwardWithoutAStep) {
  Pair pair({});
  for (int i = 0; i < 4; ++i) {
    pair.accelerator.backward(pair.loss(pair.one));
    if (i % 2 == 0) pair.one_steps.step();
    pair.one_schedule.step();
    EXPECT_EQ(rate_of(pair.first), Pair::after(i / 2 + 1)) << i;
  }
  // As often as one step asks.
  pair.one_steps.step();
  pair.one_schedule.step();
  pair.one_schedule.step();
  EXPECT_EQ(rate_of(pair.first), Pair::after(4));
}

/// A loop that resumes moves the schedule to its former place.
TEST(Accelerator, AScheduleGoesOnBeforeTheFirstStep) {
  Pair pair({.gradient_accumulation_steps = 2});
  for (int i = 0; i < 3; ++i) pair.one_schedule.step();
  EXPECT_EQ(rate_of(pair.first), Pair::after(3));
  EXPECT_EQ(rate_of(pair.second), 1);
}

/// The loop calls the optimizer's own step only in the last pass.
TEST(Accelerator, AScheduleStaysWhileGradientsAddUp) {
  Pair pair({.gradient_accumulation_steps = 2});
  for (int i = 0; i < 6; ++i) {
    auto pass = pair.accelerator.accumulate(pair.one);
    pair.accelerator.backward(pair.loss(pair.one));
    if (pair.accelerator.sync_gradients()) {
      pair.one_steps.step();
      pair.one_steps.zero_grad();
    }
    pair.one_schedule.step();
    EXPECT_EQ(rate_of(pair.first), Pair::after((i + 1) / 2)) << i;
  }
}

TEST(Accelerator, TheSchedulerStepsByTheOptionsAndNotWhileGradientsAddUp) {
  const auto rate_after = [](const kolo::AcceleratorOptions& options, int steps) {
    kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 2},
                                  options);
    auto network = make_network();
    torch::optim::SGD sgd(network->parameters(), 1.0);
    torch::optim::StepLR halves(sgd, 1, 0.5);
    auto model = accelerator.prepare(network);
    auto scheduler = accelerator.prepare(halves);
    for (int i = 0; i < steps; ++i) {
      auto pass = accelerator.accumulate(model);
      scheduler.step();
    }
    return sgd.param_groups()[0].options().get_lr();
  };
  // LibTorch's StepLR first halves at its second step.
  EXPECT_DOUBLE_EQ(rate_after({}, 4), std::pow(0.5, std::max(0, 2 * kolo::size() - 1)));
  EXPECT_DOUBLE_EQ(rate_after({.step_scheduler_with_optimizer = false}, 4), 0.125);
  kolo::Accelerator accelerator;
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 1.0);
  kolo::ReduceLROnPlateau plateau(sgd, torch::optim::ReduceLROnPlateauScheduler::min, 0.5F, 0);
  auto scheduler = accelerator.prepare(plateau);
  scheduler.step(1.0F);
  scheduler.step(2.0F);
  EXPECT_DOUBLE_EQ(sgd.param_groups()[0].options().get_lr(), 0.5) << "once, whatever the ranks";
}

}  // namespace
