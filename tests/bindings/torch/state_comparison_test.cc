// State that each rank has of its own but that should be equal on all ranks: which differences are
// errors, warnings, or allowed. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/warnings.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include <unistd.h>

namespace {

using kolo::GradScaler;
using kolo::test::is_last;
using kolo::test::message_of;
using kolo::test::Warnings;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using torch::optim::AdamW;
using torch::optim::SGD;

constexpr const char* kNoError = "(no error)";

/// "0.1 on rank 0, but 0.05 on rank 1": the value of all ranks but the last, and the last rank's.
std::string told(const std::string& others, const std::string& last) {
  std::string ranks = kolo::size() == 2 ? " 0" : "s 0";
  for (int rank = 1; rank < kolo::size() - 1; ++rank) ranks += ", " + std::to_string(rank);
  return others + " on rank" + ranks + ", but " + last + " on rank " +
         std::to_string(kolo::size() - 1);
}

#define SKIP_ALONE() \
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4"

/// A layer that trains under one of the three that reduce gradients.
struct Trained {
  enum class Way { kDdp, kOptimizer, kSharded };

  explicit Trained(Way way, double rate = 0.1) {
    torch::manual_seed(3);
    layer = torch::nn::Linear(2, 1);
    const auto named = layer->named_parameters();
    SGD sgd(layer->parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
    if (way == Way::kDdp) {
      ddp = std::make_unique<kolo::DistributedDataParallel<torch::nn::Linear>>(layer);
      optimizer = std::make_unique<SGD>(std::move(sgd));
    } else if (way == Way::kOptimizer) {
      auto made = std::make_unique<kolo::DistributedOptimizer<SGD>>(std::move(sgd), named);
      clear = [made = made.get()] { made->zero_grad(); };
      optimizer = std::move(made);
    } else {
      auto made = std::make_unique<kolo::ShardedOptimizer<SGD>>(std::move(sgd), named);
      clear = [made = made.get()] { made->zero_grad(); };
      optimizer = std::move(made);
    }
  }
  torch::Tensor loss() {
    const auto input = torch::full({1, 2}, kolo::rank() + 1.0);
    return (ddp ? ddp->forward(input) : layer->forward(input)).sum();
  }
  void set_rate(double rate) { optimizer->param_groups()[0].options().set_lr(rate); }
  void step(GradScaler* scaler = nullptr) {
    clear();
    (scaler != nullptr ? scaler->scale(loss()) : loss()).backward();
    if (scaler == nullptr) {
      optimizer->step();
    } else {
      scaler->step(*optimizer);
      scaler->update();
    }
  }

  torch::nn::Linear layer = nullptr;
  std::unique_ptr<kolo::DistributedDataParallel<torch::nn::Linear>> ddp;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::function<void()> clear = [this] { layer->zero_grad(); };
};

constexpr auto kWays = {Trained::Way::kDdp, Trained::Way::kOptimizer, Trained::Way::kSharded};

TEST(StateComparison, AnotherScaleOfARankIsAnErrorOfAllAtTheFirstStep) {
  SKIP_ALONE();
  for (const auto way : kWays) {
    GradScaler scaler({.init_scale = is_last() ? 256. : 1024.});
    Trained trained(way);
    EXPECT_THAT(message_of([&] { trained.step(&scaler); }),
                AllOf(HasSubstr("GradScaler's scale is " + told("1024", "256")),
                      HasSubstr("on every rank")));
    // If all ranks give it up, they go on.
    GradScaler equal({.init_scale = 64});
    EXPECT_EQ(message_of([&] { trained.step(&equal); }), kNoError);
  }
}

TEST(StateComparison, AScalerThatARankAloneHasLoadedIsFoundWithTheNextStep) {
  SKIP_ALONE();
  for (const auto way : kWays) {
    GradScaler scaler({.init_scale = 1024});
    Trained trained(way);
    for (int step = 0; step < 2; ++step) trained.step(&scaler);
    std::stringstream saved;
    torch::save(GradScaler({.init_scale = 1024, .growth_interval = 7}), saved);
    if (is_last()) torch::load(scaler, saved);
    EXPECT_THAT(message_of([&] { trained.step(&scaler); }),
                HasSubstr("GradScaler's growth_tracker is " + told("2", "0")));
  }
}

TEST(StateComparison, ABackwardOfARankThatIsNotScaledIsNone) {
  for (const auto way : {Trained::Way::kDdp, Trained::Way::kOptimizer}) {
    GradScaler scaler({.init_scale = 8});
    Trained trained(way);
    // As on a rank without a batch after the first step.
    for (int step = 0; step < 3; ++step) {
      trained.clear();
      (step > 0 && is_last() ? trained.loss() * 0 : scaler.scale(trained.loss())).backward();
      scaler.step(*trained.optimizer);
      scaler.update();
    }
  }
}

TEST(StateComparison, ALearningRateOfARanksOwnIsAnErrorOfAll) {
  SKIP_ALONE();
  for (const auto way : {Trained::Way::kOptimizer, Trained::Way::kSharded}) {
    Trained trained(way);
    trained.step();
    trained.set_rate(is_last() ? 0.05 : 0.1);
    for (int again = 0; again < 2; ++again)
      EXPECT_THAT(message_of([&] { trained.step(); }),
                  AllOf(HasSubstr("Optimizer: lr of group 0 is " + told("0.1", "0.05")),
                        HasSubstr("metric_average()")));
    trained.set_rate(0.05);
    EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
    // A schedule may give this value on another processor.
    trained.set_rate(is_last() ? std::nextafter(0.3, 1) : 0.3);
    EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
  }
}

TEST(StateComparison, AParameterThatOneRankAloneFreezesIsAnErrorOfAll) {
  SKIP_ALONE();
  Trained trained(Trained::Way::kOptimizer);
  trained.step();
  trained.layer->bias.set_requires_grad(!is_last());
  for (int again = 0; again < 2; ++again)
    EXPECT_THAT(message_of([&] { trained.step(); }),
                HasSubstr("requires_grad of parameter 'bias' is " + told("true", "false")));
  trained.layer->bias.set_requires_grad(false);
  EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
  trained.layer->bias.set_requires_grad(true);
  EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
}

TEST(StateComparison, AStepThatOneRankAloneLeavesOutIsAnErrorOfAll) {
  SKIP_ALONE();
  Trained trained(Trained::Way::kOptimizer);
  trained.step();
  const auto leave_out = [&](bool leaves) {
    trained.clear();
    trained.loss().backward();
    if (!leaves) trained.optimizer->step();  // an exception that the program swallows
  };
  leave_out(is_last());
  EXPECT_THAT(message_of([&] { trained.step(); }),
              HasSubstr("use of the last averages is " +
                        told("made by step()", "none, for zero_grad() came without step()")));
  EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
  leave_out(true);
  EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
}

TEST(StateComparison, TheStateOfOneRankAloneIsAnErrorOfAll) {
  SKIP_ALONE();
  auto weight = torch::ones({2}).requires_grad_();
  AdamW plain({weight}, 0.1);
  for (int step = 0; step < 5 && is_last(); ++step) {
    weight.sum().backward();
    plain.step();
  }
  kolo::broadcast_(weight.detach(), 0);
  plain.zero_grad();
  kolo::DistributedOptimizer<AdamW> optimizer(std::move(plain),
                                              kolo::NamedTensors{{"weight", weight}});
  EXPECT_THAT(
      message_of([&] { weight.sum().backward(); }),
      AllOf(HasSubstr("DistributedOptimizer: count of steps of group 0 is " + told("0", "5")),
            HasSubstr("broadcast_optimizer_state()")));
  optimizer.zero_grad();
  kolo::broadcast_optimizer_state(optimizer, kolo::size() - 1);
  const auto step = [&] {
    optimizer.zero_grad();
    weight.sum().backward();
    optimizer.step();
  };
  EXPECT_EQ(message_of(step), kNoError);
}

TEST(StateComparison, AShardedStateThatARankAloneHasLoadedIsAnErrorOfAll) {
  SKIP_ALONE();
  Trained trained(Trained::Way::kSharded);
  auto& optimizer = dynamic_cast<kolo::ShardedOptimizer<SGD>&>(*trained.optimizer);
  // What a step leaves is in the checkpoint of rank 0; others read it from there.
  const auto saved = [&] {
    trained.step();
    std::string bytes;
    optimizer.consolidate(0);
    if (kolo::rank() == 0) {
      std::stringstream stream;
      torch::save(optimizer, stream);
      bytes = stream.str();
    }
    return kolo::broadcast_object(bytes, 0);
  };
  const auto load = [&](const std::string& bytes) {
    std::stringstream stream(bytes);
    torch::load(optimizer, stream);
  };
  const std::string early = saved();
  const std::string late = saved();
  if (is_last()) load(early);
  for (int again = 0; again < 2; ++again)
    EXPECT_THAT(message_of([&] { trained.step(); }),
                AllOf(HasSubstr("ShardedOptimizer: fingerprint of the loaded state is 0 on rank"),
                      HasSubstr(" on rank " + std::to_string(kolo::size() - 1)),
                      HasSubstr("load a checkpoint on all of them")));
  load(early);
  EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
  // Each has loaded one, but not the same.
  load(is_last() ? early : late);
  EXPECT_THAT(message_of([&] { trained.step(); }), HasSubstr("fingerprint of the loaded state"));
  load(late);
  EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
  // A load that is undone, as it fails on one rank, changes nothing.
  const std::string file = testing::TempDir() + "kolo_sharded_state." + std::to_string(getppid());
  kolo::save_checkpoint(file, {.module = trained.layer.get(), .optimizer = &optimizer}, 1);
  torch::nn::Linear other(3, 1);
  EXPECT_NE(message_of([&] {
              kolo::load_checkpoint(file, {.module = is_last() ? other.get() : trained.layer.get(),
                                           .optimizer = &optimizer});
            }),
            kNoError);
  EXPECT_EQ(message_of([&] { trained.step(); }), kNoError);
  if (kolo::rank() == 0) std::filesystem::remove(file);
}

TEST(StateComparison, WhatAPlainOptimizerPartsIsWarnedOf) {
  for (const bool apart : {false, true}) {
    const Warnings warnings;
    torch::nn::Linear layer(2, 1);
    AdamW optimizer(layer->parameters(), 0.1);
    if (apart && is_last()) {
      layer->forward(torch::ones({1, 2})).sum().backward();
      optimizer.step();
    }
    kolo::DistributedDataParallel ddp(layer, {.broadcast_buffers = false});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      (-ddp.forward(torch::ones({1, 2}))).sum().backward();
      optimizer.step();
    }
    if (apart && kolo::size() > 1 && kolo::rank() == 0) {
      EXPECT_THAT(warnings.all,
                  ElementsAre(AllOf(HasSubstr("equal at backward 0 and are not at backward 2"),
                                    HasSubstr("the norm of parameter 'weight' is "),
                                    HasSubstr(" on rank " + std::to_string(kolo::size() - 1)))));
    } else {
      EXPECT_THAT(warnings.all, IsEmpty());
    }
  }
}

TEST(StateComparison, TheRankThatDiffersFromMostIsNamedAsSuch) {
  if (kolo::size() < 3) GTEST_SKIP() << "takes three ranks";
  std::string others = "1";
  for (int rank = 2; rank < kolo::size(); ++rank) others += ", " + std::to_string(rank);
  const Warnings warnings;
  Trained trained(Trained::Way::kDdp);
  for (int step = 0; step < 40; ++step) {
    if (step == 12 && kolo::rank() == 0) {
      const torch::NoGradGuard no_grad;
      trained.layer->bias.add_(1);
    }
    trained.step();
  }
  if (kolo::rank() == 0) {
    EXPECT_THAT(warnings.all,
                ElementsAre(AllOf(
                    HasSubstr("the norm of parameter 'bias' is "),
                    testing::ContainsRegex(" on ranks " + others +
                                           ", but [^ ]+ .bits [0-9a-f]+. on rank 0, against most "
                                           "ranks"))));
  }
}

TEST(StateComparison, WhatPartsLateIsFoundOnce) {
  SKIP_ALONE();
  for (const auto way : {Trained::Way::kDdp, Trained::Way::kOptimizer}) {
    const Warnings warnings;
    Trained trained(way);
    for (int step = 0; step < 40; ++step) {
      if (step == 12 && is_last()) {
        const torch::NoGradGuard no_grad;
        trained.layer->bias.add_(1);
      }
      trained.step();
    }
    if (kolo::rank() == 0) {
      EXPECT_THAT(warnings.all, ElementsAre(AllOf(HasSubstr("parameters have parted"),
                                                  HasSubstr("parameter 'bias' is "))));
    } else {
      EXPECT_THAT(warnings.all, IsEmpty());
    }
  }
}

TEST(StateComparison, RanksOfAJoinAreNotCompared) {
  const Warnings warnings;
  for (const auto way : {Trained::Way::kDdp, Trained::Way::kOptimizer}) {
    Trained trained(way);
    for (int epoch = 0; epoch < 2; ++epoch) {
      kolo::Join join;
      for (int step = 0; step < 4 + kolo::rank(); ++step) {
        trained.step();
        join.step();
      }
      const int last = join.finish();
      kolo::broadcast_parameters(*trained.layer, last);
      kolo::broadcast_optimizer_state(*trained.optimizer, last);
    }
  }
  EXPECT_THAT(warnings.all, IsEmpty());
}

TEST(StateComparison, BuffersOfARankAreItsOwnWithoutBroadcast) {
  const Warnings warnings;
  kolo::DistributedDataParallel ddp(torch::nn::BatchNorm1d(2), {.broadcast_buffers = false});
  SGD optimizer(ddp.parameters(), 0.1);
  for (int step = 0; step < 8; ++step) {
    ddp.zero_grad();
    ddp.forward(torch::rand({3, 2}) * (kolo::rank() + 1)).sum().backward();
    optimizer.step();
  }
  EXPECT_THAT(warnings.all, IsEmpty());
}

TEST(StateComparison, AcceleratorComparesItsScalersOptions) {
  SKIP_ALONE();
  const auto made = [](const std::string& precision) {
    return message_of([&] {
      kolo::Accelerator(kolo::AcceleratorConfig{.mixed_precision = precision, .use_cpu = true},
                        {.scaler = {.init_scale = is_last() ? 256. : 1024.}});
    });
  };
  EXPECT_THAT(made("fp16"), AllOf(HasSubstr("scaler is {"), HasSubstr("init_scale 1024"),
                                  HasSubstr("init_scale 256")));
  EXPECT_EQ(made("no"), kNoError);
}

TEST(StateComparison, AcceleratorComparesItsOptimizers) {
  SKIP_ALONE();
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.use_cpu = true});
  torch::nn::Linear first(2, 1);
  torch::nn::Linear second(2, 1);
  SGD plain(first->parameters(), 0.1);
  AdamW adam(second->parameters(), 0.1);
  auto [model, other, sgd, adamw] = accelerator.prepare(first, second, plain, adam);
  const auto step = [&, &model = model, &other = other, &sgd = sgd, &adamw = adamw] {
    sgd.zero_grad();
    adamw.zero_grad();
    const auto input = torch::ones({1, 2});
    accelerator.backward((model.forward(input) + other.forward(input)).sum());
    sgd.step();
    adamw.step();
  };
  step();
  if (is_last()) adam.param_groups()[0].options().set_lr(0.05);
  EXPECT_THAT(message_of(step),
              HasSubstr("lr of group 0 of optimizer 1 is " + told("0.1", "0.05")));
  adam.param_groups()[0].options().set_lr(0.1);
  EXPECT_EQ(message_of(step), kNoError);
}

}  // namespace
