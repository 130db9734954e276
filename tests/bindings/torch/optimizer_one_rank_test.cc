// A refusal by DistributedOptimizer on one rank is an error on all ranks, which name this rank; the
// job goes on. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace {

using namespace kolo::test;
using testing::AllOf;
using testing::HasSubstr;

std::string on_last(const std::string& what) {
  return "rank " + std::to_string(kolo::size() - 1) + ": " + what;
}

void expect_steps(Weights& weights) {
  for (int step = 0; step < 2; ++step) {
    weights.optimizer.zero_grad();
    weights.all().backward();
    for (const auto& weight : {weights.a, weights.b, weights.c})
      expect_gradient(weight, ranks_mean());
    weights.optimizer.step();
  }
}

/// All three weights, each alone or as a group.
class OptimizerOneRank : public testing::TestWithParam<bool> {
 protected:
  static Weights make(kolo::DistributedOptimizerOptions options = {}) {
    if (GetParam()) options.groups = 1;
    return Weights(options);
  }
};

/// The identity; its gradient is sparse on request.
struct Sparse : torch::autograd::Function<Sparse> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, bool sparse) {
    context->saved_data["sparse"] = sparse;
    return input.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const bool sparse = context->saved_data["sparse"].toBool();
    return {sparse ? gradients[0].to_sparse() : gradients[0], torch::Tensor()};
  }
};

/// What all ranks say of the gradient of b, which is sparse on the last one.
testing::Matcher<std::string> names_the_sparse(bool grouped) {
  if (grouped) {
    return AllOf(HasSubstr(on_last("the gradient of parameter")),
                 HasSubstr("/b' is sparse, and a group's gradients are dense"));
  }
  if (kolo::size() == 1) return "(no error)";
  return AllOf(HasSubstr("/b'"),
               HasSubstr(std::to_string(kolo::size() - 1) + " submitted operation allgather"));
}

TEST_P(OptimizerOneRank, ASparseGradientIsNamedByAll) {
  Weights weights = make();
  const auto loss = [&](bool sparse) {
    return (weights.a.sum() + Sparse::apply(weights.b, sparse).sum() + weights.c.sum()) * mine();
  };
  EXPECT_THAT(message_of([&] { loss(is_last()).backward(); }), names_the_sparse(GetParam()));
  expect_steps(weights);
}

TEST_P(OptimizerOneRank, AnAddedGroupIsAnErrorUntilAllHaveIt) {
  Weights weights = make();
  const auto extra = torch::ones({2}, torch::requires_grad());
  const auto add = [&] {
    weights.optimizer.add_param_group(torch::optim::OptimizerParamGroup({extra}));
  };
  if (is_last()) add();
  EXPECT_THAT(message_of([&] { weights.all().backward(); }),
              kolo::size() == 1
                  ? testing::Matcher<std::string>("(no error)")
                  : HasSubstr("has " + std::to_string(is_last() ? 4 : 3) +
                              ": add the same groups on every rank (add_param_group())"));
  if (!is_last()) add();
  expect_steps(weights);
}

TEST_P(OptimizerOneRank, ASparseGradientOfTheFirstPassOfTwoIsNamedByAll) {
  Weights weights = make({.backward_passes_per_step = 2});
  const auto loss = [&](bool sparse) {
    return (weights.a.sum() + Sparse::apply(weights.b, sparse).sum() + weights.c.sum()) * mine();
  };
  loss(is_last()).backward();
  kolo::allreduce(torch::ones({}), {.name = "loss"});
  // Alone, the passes make a dense gradient.
  const std::string message = message_of([&] { loss(false).backward(); });
  EXPECT_THAT(message, HasSubstr(GetParam() ? on_last("the gradient of") : "(no error)"));
  weights.optimizer.zero_grad();
  loss(false).backward();
  loss(false).backward();
  expect_gradient(weights.b, 2 * ranks_mean());
  weights.optimizer.step();
}

TEST_P(OptimizerOneRank, ASparseGradientThatWasSetByHandIsNamedByAll) {
  Weights weights = make();
  for (const auto& weight : {weights.a, weights.b, weights.c})
    weight.mutable_grad() = torch::ones_like(weight.detach());
  if (is_last()) weights.b.mutable_grad() = weights.b.grad().to_sparse();
  EXPECT_THAT(message_of([&] { weights.optimizer.step(); }), names_the_sparse(GetParam()));
  const bool has_stepped = !GetParam() && kolo::size() == 1;
  EXPECT_EQ(weights.a[0].item<double>(), has_stepped ? 0 : 1);
  expect_steps(weights);
}

TEST_P(OptimizerOneRank, AGraphOfGradientsIsNamedByAll) {
  Weights weights = make();
  EXPECT_THAT(message_of([&] {
                const auto loss = weights.a.pow(2).sum() + weights.b.sum() + weights.c.sum();
                loss.backward({}, /*retain_graph=*/true, /*create_graph=*/is_last());
              }),
              AllOf(HasSubstr(on_last("DistributedOptimizer: the gradient of parameter")),
                    HasSubstr("create_graph"), HasSubstr("torch::autograd::grad()")));
  expect_steps(weights);
}

TEST_P(OptimizerOneRank, ADeviceThatKoloDoesNotTakeIsNamedByAll) {
  const auto device = torch::TensorOptions(is_last() ? torch::kMeta : torch::kCPU);
  auto w = torch::ones({3}, device.requires_grad(true));
  kolo::DistributedOptimizerOptions options;
  if (GetParam()) options.groups = 1;
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({w}, 1.0), kolo::NamedTensors{{"w", w}},
                                       options);
  EXPECT_THAT(message_of([&] { w.sum().backward(); }),
              HasSubstr("/w': " + on_last("the tensor is on meta, but")));
  // A gradient that no backward has reached, in a step.
  optimizer.zero_grad();
  EXPECT_THAT(message_of([&] { optimizer.step(); }),
              HasSubstr("/w': " + on_last("the tensor is on meta, but")));
}

TEST(OptimizerGroupOfOneRank, AGradientThatWasChangedBeforeItLeftIsNamedByAll) {
  Weights weights({.groups = 1});
  (weights.a.sum() * mine()).backward();
  if (is_last()) weights.a.mutable_grad().zero_();
  EXPECT_THAT(message_of([&] { weights.all().backward(); }),
              AllOf(HasSubstr(on_last("the gradient of parameter")),
                    HasSubstr("/a' was changed while it was under way")));
  expect_steps(weights);
}

/// Fails on the last rank on request.
class Failing final : public kolo::Compressor {
 public:
  torch::ScalarType wire_type(torch::ScalarType type) const override { return type; }
  torch::Tensor compress(const std::string& name, const torch::Tensor& gradient) override {
    if (fails && is_last() && name.ends_with("/b")) throw std::runtime_error("the pencil broke");
    return gradient;
  }
  bool fails = true;
};

TEST_P(OptimizerOneRank, ACompressorThatFailsIsNamedByAll) {
  const auto compressor = std::make_shared<Failing>();
  Weights weights = make({.compression = compressor});
  EXPECT_THAT(message_of([&] { weights.all().backward(); }),
              AllOf(HasSubstr(on_last("parameter 'optimizer")),
                    HasSubstr("/b': compress() has failed: the pencil broke")));
  compressor->fails = false;
  expect_steps(weights);
}

TEST_P(OptimizerOneRank, ACountOfSamplesThatIsMissingIsNamedByAll) {
  Weights weights = make({.weigh_by_samples = true});
  if (!is_last()) weights.optimizer.set_sample_count(2);
  EXPECT_THAT(message_of([&] { weights.all().backward(); }),
              HasSubstr(on_last("weigh_by_samples needs set_sample_count()")));
  weights.optimizer.zero_grad();
  weights.optimizer.set_sample_count(2);
  weights.all().backward();
  expect_gradient(weights.a, ranks_mean());
  weights.optimizer.step();
}

TEST_P(OptimizerOneRank, ASecondBackwardOfWeighedGradientsIsNamedByAll) {
  Weights weights = make({.weigh_by_samples = true});
  weights.optimizer.set_sample_count(1);
  weights.all().backward();
  if (!is_last())
    for (const auto& weight : {weights.a, weights.b, weights.c}) weight.mutable_grad().reset();
  EXPECT_THAT(message_of([&] { weights.all().backward(); }),
              AllOf(HasSubstr("rank " + std::to_string(kolo::size() - 1) + ": parameter '"),
                    HasSubstr("a second backward before zero_grad()")));
}

TEST(OptimizerOfOneRank, WhatDiffersIsNamedByAllWhereItIsMade) {
  if (kolo::size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const auto layer = [] { return torch::nn::Linear(2, 1); };
  const auto make = [](torch::nn::Sequential net, const auto& options) {
    const kolo::DistributedOptimizer optimizer(torch::optim::SGD(net->parameters(), 0.1),
                                               net->named_parameters(), options);
  };
  const kolo::DistributedOptimizerOptions defaults;
  const std::string last = "rank " + std::to_string(kolo::size() - 1);

  torch::nn::Sequential longer(layer());
  if (is_last()) longer->push_back(layer());
  EXPECT_THAT(message_of([&] { make(longer, defaults); }),
              HasSubstr(last + " has parameter '1.weight' (Float [1, 2], trained (requires_grad), "
                               "in no group), which rank 0 lacks"));
  torch::nn::Sequential frozen(layer());
  for (auto& parameter : frozen->parameters()) parameter.requires_grad_(!is_last());
  EXPECT_THAT(message_of([&] { make(frozen, defaults); }),
              HasSubstr("parameter '0.weight' is trained (requires_grad) on rank 0, but frozen (no "
                        "requires_grad) on " +
                        last));
  EXPECT_THAT(message_of([&] {
                make(torch::nn::Sequential(layer()),
                     kolo::DistributedOptimizerOptions{.groups = is_last() ? 2 : 1});
              }),
              HasSubstr("in group 0 on rank 0, but in group 1 on " + last));
  // A refusal on one rank is told to all ranks.
  EXPECT_THAT(
      message_of([&] {
        make(torch::nn::Sequential(layer()),
             kolo::DistributedOptimizerOptions{.backward_passes_per_step = is_last() ? 0 : 1});
      }),
      HasSubstr("backward_passes_per_step is 0"));
  Weights weights;
  expect_steps(weights);
}

TEST(OptimizerOfOneRank, FreezingAllOfItIsAnErrorAndKeepsNobodyWaiting) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  Weights weights;
  weights.optimizer.zero_grad();
  const auto all = weights.all();
  for (auto* const weight : {&weights.a, &weights.b, &weights.c})
    weight->requires_grad_(!is_last());
  EXPECT_THAT(message_of([&] {
                if (!is_last()) all.backward();
                weights.optimizer.step();
              }),
              HasSubstr("requires_grad of parameter 'a' is true on rank"));
  for (auto* const weight : {&weights.a, &weights.b, &weights.c}) weight->requires_grad_(true);
  expect_steps(weights);
}

INSTANTIATE_TEST_SUITE_P(Grouped, OptimizerOneRank, testing::Bool());

/// Two optimizers of one loss; the order differs from rank to rank.
TEST(OptimizersOfOneLoss, WhatOneRefusesLeavesTheOthersDone) {
  Weights wrong({.groups = std::vector<std::vector<std::string>>{{"a"}}});
  Weights right;
  torch::nn::Linear layer(1, 1);
  kolo::DistributedDataParallel ddp(layer);
  const auto backward = [&](bool sparse) {
    // The last computed has its gradients first.
    torch::Tensor loss = torch::zeros({}, torch::kFloat64);
    for (int part = 0; part < 3; ++part) {
      const int next = (part + kolo::rank()) % 3;
      if (next == 0) loss = loss + right.all();
      if (next == 1) loss = loss + ddp.forward(torch::full({1, 1}, mine())).sum();
      if (next == 2) loss = loss + Sparse::apply(wrong.a, sparse).sum() * mine();
    }
    loss.backward();
  };
  EXPECT_THAT(message_of([&] { backward(is_last()); }), HasSubstr(on_last("the gradient of")));
  EXPECT_EQ(right.optimizer.pending(), 0U);
  for (const auto& weight : {right.a, right.b, right.c}) expect_gradient(weight, ranks_mean());
  expect_gradient(layer->weight, ranks_mean());
  wrong.optimizer.zero_grad();
  right.optimizer.zero_grad();
  ddp.zero_grad();
  backward(false);
  expect_gradient(wrong.a, ranks_mean());
  expect_gradient(right.a, ranks_mean());
  expect_gradient(layer->weight, ranks_mean());
  right.optimizer.step();
  wrong.optimizer.step();
}

}  // namespace
