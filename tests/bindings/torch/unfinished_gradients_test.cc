// Gradients that are not reduced when backward() returns, or whose step is skipped: on some ranks
// only, in some passes only, or in a backward within another one. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>

namespace {

using namespace kolo::test;

/// b gets a gradient on the last rank alone, and it is far too large.
void begin_wrong_step(Weights& weights) {
  auto loss = weights.a.sum() * mine();
  if (is_last()) loss = loss + 1000 * weights.b.sum();
  loss.backward();
}

void expect_right_steps(Weights& weights) {
  for (int step = 0; step < 2; ++step) {
    weights.all().backward();
    weights.optimizer.step();
    for (const auto& weight : {weights.a, weights.b, weights.c})
      expect_gradient(weight, ranks_mean());
    weights.optimizer.zero_grad();
  }
}

TEST(UnfinishedGradients, AStepThatIsLeftOutIsForgottenOnAllRanks) {
  for (const bool set_to_none : {true, false}) {
    for (const int groups : {0, 2}) {
      kolo::DistributedOptimizerOptions options;
      if (groups > 0) options.groups = groups;
      Weights weights(options);
      begin_wrong_step(weights);
      weights.optimizer.zero_grad(set_to_none);
      expect_right_steps(weights);
    }
  }
}

TEST(UnfinishedGradients, AnOptimizerThatEndsBeforeItsStepLeavesNothing) {
  for (int i = 0; i < 2; ++i) {
    Weights weights;
    begin_wrong_step(weights);
  }
  Weights weights;
  expect_right_steps(weights);
}

TEST(UnfinishedGradients, AStepThatIsLeftOutAfterClippingMayBeClearedByTheModule) {
  for (const bool all_go_back : {true, false}) {
    Weights weights;
    weights.all().backward();
    weights.optimizer.clip_grad_norm(1);
    for (const auto& weight : {weights.a, weights.b, weights.c}) weight.mutable_grad().reset();
    auto loss = weights.a.sum();
    if (kolo::rank() == 0) loss = loss + weights.b.sum();
    if (kolo::rank() == 0 || all_go_back) loss.backward();
    weights.optimizer.step();
    expect_gradient(weights.a, all_go_back ? 1 : 1.0 / kolo::size());
    expect_gradient(weights.b, 1.0 / kolo::size());
  }
}

TEST(UnfinishedGradients, AGradientThatOnlyOthersHaveAnewIsAddedTo) {
  Weights weights;
  weights.all().backward();
  auto loss = weights.a.sum();
  if (kolo::rank() == 0) loss = loss + weights.b.sum();
  loss.backward();
  weights.optimizer.step();
  expect_gradient(weights.a, ranks_mean() + 1);
  expect_gradient(weights.b, ranks_mean() + 1.0 / kolo::size());
}

TEST(UnfinishedGradients, AGroupThatOnlySomeRanksHaveWholeIsDoneAfterClipping) {
  Weights weights({.groups = 1});
  for (int step = 0; step < 2; ++step) {
    weights.optimizer.zero_grad();
    auto loss = weights.a.sum() + weights.b.sum();
    if (kolo::rank() == 0) loss = loss + weights.c.sum();
    (loss * mine()).backward();
    weights.optimizer.clip_grad_norm(1e6);
    weights.optimizer.step();
    expect_gradient(weights.a, ranks_mean());
    expect_gradient(weights.c, 1.0 / kolo::size());
  }
}

TEST(UnfinishedGradients, WhatLacksPassesIsHidden) {
  Weights weights({.backward_passes_per_step = 2});
  (weights.a.sum() * mine()).backward();
  expect_gradient(weights.a, mine());
  weights.all().backward();
  expect_gradient(weights.a, 2 * ranks_mean());
  EXPECT_NE(message_of([&] {
              torch::nn::utils::clip_grad_norm_({weights.a, weights.b}, 0.1);
            }),
            "(no error)");
  weights.optimizer.step();
  expect_gradient(weights.b, ranks_mean());
  // The third pass is only the second for the parameter that missed one.
  weights.optimizer.zero_grad();
  (weights.a.sum() * mine()).backward();
  weights.all().backward();
  (weights.b.sum() * mine()).backward();
  weights.optimizer.step();
  expect_gradient(weights.b, 2 * ranks_mean());
  expect_gradient(weights.c, ranks_mean());
}

/// Clamps the gradient in place.
class Clamping final : public kolo::Compressor {
 public:
  torch::ScalarType wire_type(torch::ScalarType type) const override { return type; }
  torch::Tensor compress(const std::string&, const torch::Tensor& gradient) override {
    return gradient.clamp_(-1, 1);
  }
};

TEST(UnfinishedGradients, ACompressorMayWorkWhereTheGradientLies) {
  Weights weights({.compression = std::make_shared<Clamping>()});
  (weights.all() * 10).backward();
  expect_gradient(weights.a, 1);
  weights.optimizer.step();
}

TEST(UnfinishedGradients, SamplesAreWeighedAfterTheModuleHasCleared) {
  Weights weights({.weigh_by_samples = true});
  for (int step = 0; step < 3; ++step) {
    weights.optimizer.set_sample_count(2);
    weights.all().backward();
    weights.optimizer.step();
    for (const auto& weight : {weights.a, weights.b, weights.c}) {
      expect_gradient(weight, ranks_mean());
      weight.mutable_grad().reset();
    }
  }
}

TEST(UnfinishedGradients, AGroupIsTakenOnAlthoughARankMakesNoBackward) {
  Weights weights;
  auto added = torch::ones({2}, kLeaf);
  for (int step = 0; step < 2; ++step) {
    weights.optimizer.zero_grad();
    if (step == 0) {
      static_cast<torch::optim::Optimizer&>(weights.optimizer)
          .add_param_group(torch::optim::OptimizerParamGroup({added}));
    }
    if (!is_last() || kolo::size() == 1) (weights.all() + added.sum()).backward();
    weights.optimizer.step();
    const double sum = kolo::size() == 1 ? 1 : ranks_sum() - kolo::size();
    expect_gradient(weights.a, sum / kolo::size());
    expect_gradient(added, kolo::size() == 1 ? 1 : (kolo::size() - 1.0) / kolo::size());
  }
}

/// Recomputes forward in backward, as activation checkpointing does.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  using Part = std::function<torch::Tensor(const torch::Tensor&)>;
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, const Part* part) {
    context->save_for_backward({input});
    context->saved_data["part"] = reinterpret_cast<std::int64_t>(part);
    return (*part)(input.detach()).detach();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const torch::AutoGradMode with_graph(true);
    const auto* const part = reinterpret_cast<const Part*>(context->saved_data["part"].toInt());
    const auto input = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::autograd::backward({(*part)(input)}, {gradients[0]});
    return {input.grad(), torch::Tensor()};
  }
};

TEST(UnfinishedGradients, WhatIsCheckpointedAsAWholeIsDone) {
  for (const bool differ : {false, true}) {
    Weights weights;
    for (int step = 0; step < 2; ++step) {
      weights.optimizer.zero_grad();
      const Checkpoint::Part part = [&](const torch::Tensor& input) {
        auto output = weights.a.sum() * mine() * input;
        if (differ && kolo::rank() == 0) output = output + weights.b.sum() * input;
        return output;  // c is unused
      };
      const auto input = torch::ones({1}, kLeaf);
      const auto loss = Checkpoint::apply(input, &part).sum();
      loss.backward();
      expect_gradient(weights.a, ranks_mean());
      kolo::allreduce(loss.detach(), {.name = "loss"});
      if (!differ) torch::nn::utils::clip_grad_norm_({weights.a, weights.b, weights.c}, 1e6);
      weights.optimizer.step();
      expect_gradient(weights.a, ranks_mean());
      if (differ) expect_gradient(weights.b, 1.0 / kolo::size());
    }
  }
}

}  // namespace
