// When a scheduler of the Accelerator's steps. On all ranks at once.
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
  for (int i = 0; i < 2; ++i) scheduler.step();  // the first of all changes nothing
  EXPECT_TRUE(one.step_was_skipped());
  EXPECT_TRUE(copy.step_was_skipped());
  EXPECT_FALSE(other.step_was_skipped());
  EXPECT_EQ(one.param_groups()[0].options().get_lr(), 0.05);
  // The second one goes on alone, and the schedule with it.
  accelerator.backward(model.forward(batch_of(1, kolo::rank())).square().mean());
  other.step();
  for (int i = 0; i < 2; ++i) scheduler.step();
  EXPECT_LT(one.param_groups()[0].options().get_lr(), 0.05);
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
