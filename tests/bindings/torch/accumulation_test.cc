// Gradients that add up over passes of the Accelerator's accumulate(), for every order of a loop's
// calls. On all ranks at once.
#include "tests/bindings/torch/accelerator_network.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace {

using kolo::test::batch_of;
using kolo::test::batch_of_all;
using kolo::test::expect_close;
using kolo::test::make_network;
using kolo::test::message_of;
using testing::HasSubstr;

/// Where a loop calls zero_grad(). kBehindBackward: after a backward that is not the last of a
/// step.
enum class Clears { kInFront, kInFrontOfThePass, kBehindBackward, kBehindStep };

class Accumulation : public testing::TestWithParam<Clears> {
 protected:
  /// Nine passes, three per step, through what `make` makes of a network.
  template <class Make>
  static void expect_one_step_for_three_passes(const Make& make) {
    kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 3});
    auto alone = make_network(), network = make_network();
    torch::optim::SGD reference(alone->parameters(), 0.1);
    auto own = make(network);
    torch::optim::StepLR rate(own, 1, 0.5);
    auto [model, optimizer, scheduler] = accelerator.prepare(network, own, rate);
    for (int step = 0; step < 9; ++step) {
      if (step % 3 == 0) reference.zero_grad();
      (alone->forward(batch_of_all(step)).square().mean() / 3).backward();
      if (step % 3 == 2) reference.step();
      if (GetParam() == Clears::kInFrontOfThePass) optimizer.zero_grad();
      auto pass = accelerator.accumulate(model);
      const bool is_last = accelerator.sync_gradients();
      EXPECT_EQ(is_last, step % 3 == 2);
      if (GetParam() == Clears::kInFront) optimizer.zero_grad();
      accelerator.backward(model->forward(batch_of(step, kolo::rank())).square().mean());
      if (GetParam() == Clears::kBehindBackward && !is_last) optimizer.zero_grad();
      EXPECT_EQ(accelerator.clip_grad_norm(optimizer, 1e9) > 0, is_last);
      optimizer.step();
      scheduler.step();
      if (GetParam() == Clears::kBehindStep) optimizer.zero_grad();
      own.param_groups()[0].options().set_lr(0.1);
    }
    expect_close(*alone, *network, 1e-5);
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, Accumulation,
                         testing::Values(Clears::kInFront, Clears::kInFrontOfThePass,
                                         Clears::kBehindBackward, Clears::kBehindStep));

TEST_P(Accumulation, PassesAreOneStep) {
  expect_one_step_for_three_passes(
      [](auto& network) { return torch::optim::SGD(network->parameters(), 0.1); });
}

TEST_P(Accumulation, PassesAreOneStepOfAShardedOptimizer) {
  expect_one_step_for_three_passes([](auto& network) {
    return kolo::ShardedOptimizer(torch::optim::SGD(network->parameters(), 0.1),
                                  network->named_parameters(), {.gradients_are_reduced = true});
  });
}

/// Parameters of both networks.
std::vector<torch::Tensor> parameters_of(const std::array<torch::nn::Sequential, 2>& networks) {
  std::vector<torch::Tensor> all;
  for (const auto& network : networks)
    for (const auto& parameter : network->parameters()) all.push_back(parameter.detach());
  return all;
}

constexpr int kBatches = 5;

/// Parameters after kBatches of a loader; on each batch both networks make a pass. A step has three
/// passes, or fewer at the loader's last batch. There, one network's step comes right before the
/// pass of the other, which still holds gradients of earlier passes.
std::vector<torch::Tensor> after_passes_of_each(kolo::Accelerator& accelerator, bool in_front) {
  std::vector<torch::Tensor> batches;
  for (int step = 0; step < kBatches; ++step)
    for (int r = 0; r < kolo::size(); ++r) batches.push_back(batch_of(step, r));
  std::array networks{make_network(), make_network()};
  torch::optim::SGD first(networks[0]->parameters(), 0.1), second(networks[1]->parameters(), 0.1);
  auto [one, other, one_steps, other_steps, loader] =
      accelerator.prepare(networks[0], networks[1], first, second, batches);
  const auto turn = [&](auto& model, auto& optimizer, const torch::Tensor& batch) {
    auto pass = accelerator.accumulate(model);
    if (in_front) optimizer.zero_grad();
    accelerator.backward(model(batch).square().mean());
    optimizer.step();
    if (!in_front) optimizer.zero_grad();
  };
  for (auto& batch : loader) {
    turn(one, one_steps, batch);
    turn(other, other_steps, batch);
  }
  return parameters_of(networks);
}

TEST(Accelerator, ModelsWithPassesOfTheirOwnKeepWhatEachHasAddedUp) {
  std::array alone{make_network(), make_network()};
  int passes = 0;
  std::vector<torch::optim::SGD> references;
  for (auto& network : alone) references.emplace_back(network->parameters(), 0.1);
  for (int step = 0; step < kBatches; ++step) {
    for (std::size_t i = 0; i < 2; ++i) {
      (alone[i]->forward(batch_of_all(step)).square().mean() / 3).backward();
      if (++passes % 3 != 0 && step != kBatches - 1) continue;
      references[i].step();
      references[i].zero_grad();
    }
  }
  const auto expected = parameters_of(alone);
  for (const bool in_front : {true, false}) {
    kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 3});
    const auto all = after_passes_of_each(accelerator, in_front);
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_TRUE(torch::allclose(all[i], expected[i], 1e-5, 1e-5)) << i << ' ' << in_front;
  }
}

TEST(Accelerator, WhatAddsUpTakesPartInTheScaleThatAnothersStepChanges) {
  kolo::Accelerator plain(kolo::AcceleratorConfig{.gradient_accumulation_steps = 3});
  const auto expected = after_passes_of_each(plain, false);
  for (const bool in_front : {true, false}) {
    kolo::Accelerator accelerator(
        kolo::AcceleratorConfig{.mixed_precision = "fp16", .gradient_accumulation_steps = 3},
        {.scaler = {.init_scale = 8, .growth_interval = 1}});
    const auto scaled = after_passes_of_each(accelerator, in_front);
    EXPECT_GT(accelerator.scaler()->scale_now(), 8);
    for (std::size_t i = 0; i < scaled.size(); ++i)
      EXPECT_TRUE(torch::allclose(scaled[i], expected[i], 1e-2, 1e-2)) << i << ' ' << in_front;
  }
}

/// A generator and a critic, each with its optimizer, whose gradients add up over passes.
struct Adversaries {
  explicit Adversaries(int steps)
      : accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = steps}) {}

  void set_frozen(bool is_frozen) {
    for (auto& parameter : networks[1]->parameters()) parameter.requires_grad_(!is_frozen);
  }
  static torch::nn::Sequential make_generator() {
    torch::manual_seed(12);
    return torch::nn::Sequential(torch::nn::Linear(4, 4));
  }
  /// The critic's score of generated rows; generator and critic change it in opposite directions.
  static torch::Tensor loss(const torch::Tensor& said) { return said.square().mean(); }

  /// A pass over `turns`: 'g' is the generator, 'c' the critic.
  void pass(const std::string& turns, int step, bool in_front) {
    const torch::Tensor noise = batch_of(step, kolo::rank());
    auto open = accelerator.accumulate(generator, critic);
    for (const char turn : turns) {
      if (turn == 'g') {
        if (in_front) generator_steps.zero_grad();
        if (freezes) set_frozen(true);
        accelerator.backward(loss(critic(generator(noise))));
        if (freezes) set_frozen(false);
        generator_steps.step();
        if (!in_front) generator_steps.zero_grad();
      } else {
        if (in_front) critic_steps.zero_grad();
        accelerator.backward(-loss(critic(generator(noise).detach())));
        critic_steps.step();
        if (!in_front) critic_steps.zero_grad();
      }
    }
  }

  /// Makes the same passes in one process, by hand.
  static std::vector<torch::Tensor> by_hand(const std::string& turns, int passes) {
    std::array networks{make_generator(), make_network()};
    torch::optim::SGD first(networks[0]->parameters(), 0.1), second(networks[1]->parameters(), 0.2);
    for (int step = 0; step < passes; ++step) {
      const torch::Tensor noise = batch_of_all(step);
      for (const char turn : turns) {
        auto& optimizer = turn == 'g' ? first : second;
        torch::Tensor rows = networks[0]->forward(noise);
        if (turn == 'c') rows = rows.detach();
        const torch::Tensor value = loss(networks[1]->forward(rows)) / (turn == 'g' ? 2 : -2);
        value.backward({}, false, false,
                       turn == 'g' ? networks[0]->parameters() : networks[1]->parameters());
        if (step % 2 == 0) continue;
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    return parameters_of(networks);
  }

  bool freezes = true;
  kolo::Accelerator accelerator;
  std::array<torch::nn::Sequential, 2> networks{make_generator(), make_network()};
  torch::optim::SGD first{networks[0]->parameters(), 0.1}, second{networks[1]->parameters(), 0.2};
  kolo::PreparedModel<torch::nn::Sequential> generator = accelerator.prepare(networks[0]);
  kolo::PreparedModel<torch::nn::Sequential> critic = accelerator.prepare(networks[1]);
  kolo::PreparedOptimizer<torch::optim::SGD> generator_steps = accelerator.prepare(first);
  kolo::PreparedOptimizer<torch::optim::SGD> critic_steps = accelerator.prepare(second);
};

TEST(Accelerator, AdversariesTakeTurnsWhileGradientsAddUp) {
  for (const std::string turns : {"gc", "cg"}) {
    const auto expected = Adversaries::by_hand(turns, 4);
    for (const bool in_front : {true, false}) {
      Adversaries both(2);
      for (int step = 0; step < 4; ++step) both.pass(turns, step, in_front);
      const auto all = parameters_of(both.networks);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(torch::allclose(all[i], expected[i], 1e-5, 1e-5))
            << turns << ' ' << in_front << ' ' << i;
      }
    }
  }
}

TEST(Accelerator, WhatAnothersBackwardAddsToGradientsIsNotDroppedInSilence) {
  const auto error_of = [](const std::string& turns, int steps) {
    Adversaries both(steps);
    both.freezes = false;
    return message_of([&] {
      for (int step = 0; step < 2; ++step) both.pass(turns, step, true);
    });
  };
  const auto of_rank = "of an optimizer on rank " + std::to_string(kolo::rank());
  for (const char* const turns : {"gc", "cg"}) {
    EXPECT_THAT(error_of(turns, 3), HasSubstr("zero_grad() " + of_rank));
    EXPECT_THAT(error_of(turns, 3), HasSubstr("set requires_grad_(false)"));
    EXPECT_EQ(error_of(turns, 1), "(no error)");
  }
  EXPECT_THAT(error_of("cg", 2), HasSubstr("zero_grad() " + of_rank));
  EXPECT_THAT(error_of("gc", 2), HasSubstr("step() " + of_rank)) << "it has dropped them all";
}

TEST(Accelerator, WhatIsClearedAfterTheLastBackwardIsGone) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 2});
  auto network = make_network();
  torch::optim::SGD sgd(network->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(network, sgd);
  for (int step = 0; step < 2; ++step) {
    auto pass = accelerator.accumulate(model);
    accelerator.backward(model->forward(batch_of(step, kolo::rank())).square().mean());
    optimizer.zero_grad();  // as after a norm that is not finite
    EXPECT_EQ(network->parameters()[0].grad().defined(), step == 0);
  }
}

TEST(Accelerator, WhatHasAddedUpStaysBehindInAnotherWorld) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 2});
  auto alone = make_network(), network = make_network();
  torch::optim::SGD reference(alone->parameters(), 0.1), sgd(network->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(network, sgd);
  const auto pass_of = [&, &model = model, &optimizer = optimizer](int step) {
    auto pass = accelerator.accumulate(model);
    accelerator.backward(model->forward(batch_of(step, kolo::rank())).square().mean());
    optimizer.step();
    return accelerator.sync_gradients();
  };
  EXPECT_FALSE(pass_of(7));  // the other half of this step is lost
  kolo::shutdown();
  model.leave_world();
  kolo::init();
  model.enter_world();
  for (int step = 0; step < 2; ++step) {
    (alone->forward(batch_of_all(step)).square().mean() / 2).backward();
    EXPECT_EQ(pass_of(step), step == 1);
  }
  reference.step();
  expect_close(*alone, *network, 1e-5);
}

TEST(Accelerator, ModelsOfOnePassAddUpTogether) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 2});
  auto one = make_network(), other = make_network();
  torch::optim::SGD first(one->parameters(), 0.1), second(other->parameters(), 0.2);
  auto [one_model, other_model, one_steps, other_steps] =
      accelerator.prepare(one, other, first, second);
  for (int i = 0; i < 4; ++i) {
    auto pass = accelerator.accumulate(one_model, other_model);
    EXPECT_EQ(accelerator.sync_gradients(), i % 2 == 1);
    EXPECT_THAT(message_of([&] { auto again = accelerator.accumulate(other_model); }),
                HasSubstr("within a pass of accumulate(); name all models of a pass in one call"));
    accelerator.backward(one_model(batch_of(i, kolo::rank())).square().mean());
    accelerator.backward(other_model(batch_of(i, kolo::rank())).square().mean());
    one_steps.step();
    other_steps.step();
    one_steps.zero_grad();
    other_steps.zero_grad();
  }
  for (const auto& network : {one, other}) {
    const auto weight = network->parameters()[0].detach();
    EXPECT_TRUE(torch::equal(kolo::broadcast(weight, 0), weight)) << "alike on all ranks";
    EXPECT_FALSE(torch::equal(make_network()->parameters()[0], weight));
  }
}

/// Parameters of two models after four passes, two per step. With `in_front`, each optimizer's
/// zero_grad() comes before its model's backward, else after its step().
std::vector<torch::Tensor> after_passes_of_two(kolo::Accelerator& accelerator, bool in_front) {
  auto one = make_network(), other = make_network();
  torch::optim::SGD first(one->parameters(), 0.1), second(other->parameters(), 0.2);
  auto [one_model, other_model, one_steps, other_steps] =
      accelerator.prepare(one, other, first, second);
  const auto turn = [&](auto& model, auto& optimizer, int step) {
    if (in_front) optimizer.zero_grad();
    accelerator.backward(model(batch_of(step, kolo::rank())).square().mean());
    optimizer.step();
    if (!in_front) optimizer.zero_grad();
  };
  for (int i = 0; i < 4; ++i) {
    auto pass = accelerator.accumulate(one_model, other_model);
    turn(one_model, one_steps, i);
    turn(other_model, other_steps, i);
  }
  std::vector<torch::Tensor> parameters;
  for (const auto& network : {one, other})
    for (const auto& parameter : network->parameters()) parameters.push_back(parameter.detach());
  return parameters;
}

/// `count` batches of one element on each rank.
auto batches_of_one(int count) {
  return kolo::loader_recipe(
      torch::data::datasets::TensorDataset(torch::zeros({count * kolo::size(), 1}))
          .map(torch::data::transforms::Stack<torch::data::TensorExample>()));
}

/// Which passes step ('.' or 'S') in `epochs` loops over seven batches, each with a batch of a
/// second loader of four labelled batches, which starts again and again.
std::string steps_of_two_loaders(bool labelled_first, bool keeps_labelled, int epochs) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 3});
  torch::nn::Linear linear(1, 1);
  auto [model, labelled, unlabelled] =
      accelerator.prepare(linear, batches_of_one(4), batches_of_one(7));
  std::string steps;
  auto kept = keeps_labelled ? std::optional(labelled.begin()) : std::nullopt;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    auto first = labelled_first && !kept ? std::optional(labelled.begin()) : std::nullopt;
    auto long_one = unlabelled.begin();
    if (!labelled_first && !kept) first = labelled.begin();
    auto& short_one = kept ? *kept : *first;
    for (; long_one != unlabelled.end(); ++long_one) {
      if (short_one == labelled.end()) short_one = labelled.begin();
      const auto pass = accelerator.accumulate(model);
      steps += accelerator.sync_gradients() ? "S" : ".";
      ++short_one;
    }
  }
  return steps;
}

TEST(Accelerator, OfTwoLoadersInALoopTheLongerEndsAccumulation) {
  for (const bool labelled_first : {false, true}) {
    for (const bool keeps_labelled : {false, true}) {
      SCOPED_TRACE(testing::Message() << labelled_first << keeps_labelled);
      EXPECT_EQ(steps_of_two_loaders(labelled_first, keeps_labelled, 3), "..S..SS..S..SS..S..SS");
    }
  }
}

TEST(Accelerator, AnInnerLoopsLoaderEndsItsAccumulation) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 2});
  torch::nn::Linear linear(1, 1);
  auto [model, outer, inner] = accelerator.prepare(linear, batches_of_one(5), batches_of_one(3));
  std::string steps;
  for (auto& task : outer) {
    static_cast<void>(task);
    for (auto& batch : inner) {
      static_cast<void>(batch);
      const auto pass = accelerator.accumulate(model);
      steps += accelerator.sync_gradients() ? "S" : ".";
    }
  }
  EXPECT_EQ(steps, ".SS.SS.SS.SS.SS");
}

TEST(Accelerator, EachOptimizerIsClearedByItsOwnBackwards) {
  kolo::Accelerator accelerator(kolo::AcceleratorConfig{.gradient_accumulation_steps = 2});
  const auto behind = after_passes_of_two(accelerator, false);
  const auto in_front = after_passes_of_two(accelerator, true);
  for (std::size_t i = 0; i < behind.size(); ++i)
    EXPECT_TRUE(torch::allclose(in_front[i], behind[i])) << i;
}

TEST(Accelerator, WhatAddsUpHasOneScale) {
  // Each step makes the scale grow; this must not happen between the passes of the second model.
  kolo::Accelerator plain(kolo::AcceleratorConfig{.gradient_accumulation_steps = 2});
  const auto expected = after_passes_of_two(plain, false);
  kolo::Accelerator accelerator(
      kolo::AcceleratorConfig{.mixed_precision = "fp16", .gradient_accumulation_steps = 2},
      {.scaler = {.init_scale = 8, .growth_interval = 1}});
  const auto scaled = after_passes_of_two(accelerator, false);
  for (std::size_t i = 0; i < scaled.size(); ++i)
    EXPECT_TRUE(torch::allclose(scaled[i], expected[i], 2e-2, 2e-2)) << i;
}

}  // namespace
