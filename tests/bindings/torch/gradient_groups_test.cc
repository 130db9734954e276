// DistributedOptimizer's groups: the same training as without groups, groups that fail as a whole,
// and invalid groups. On all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kolo::test::message_of;
using testing::HasSubstr;

using Names = std::vector<std::vector<std::string>>;
using Tensors = std::vector<std::vector<torch::Tensor>>;

torch::nn::Sequential two_layers() {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 3));
  net->to(torch::kFloat64);
  return net;
}

struct Trainer {
  torch::nn::Sequential net = two_layers();
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer;

  explicit Trainer(const kolo::GradientGroups& groups)
      : optimizer(torch::optim::SGD(net->parameters(), 0.1), net->named_parameters(),
                  {.groups = groups}) {}

  torch::Tensor loss(int step) {
    const auto seed = static_cast<std::uint64_t>(step * 100 + kolo::rank());
    torch::manual_seed(seed);
    return net->forward(torch::randn({5, 4}, torch::kFloat64)).square().mean();
  }
  std::vector<torch::Tensor> train() {
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      loss(step).backward();
      if (step == 3) loss(step + 50).backward();  // a second backward before the step
      if (step == 4) net->parameters()[0].set_requires_grad(false);
      optimizer.step();
    }
    return net->parameters();
  }
};

TEST(GradientGroups, TrainAsWithoutThem) {
  const auto expected = Trainer({}).train();
  const auto expect = [&](const kolo::GradientGroups& groups) {
    const auto trained = Trainer(groups).train();
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(torch::allclose(trained[i], expected[i], 1e-12, 1e-12)) << i;
  };
  expect(1);
  expect(3);
  expect(100);
  expect(Names{{"2.bias", "0.weight"}, {"0.bias"}});
}

TEST(GradientGroups, OfParametersThemselvesStartWithTheLastGradient) {
  const auto options = torch::TensorOptions(torch::kFloat64).requires_grad(true);
  const std::vector<torch::Tensor> w{torch::ones({3}, options), torch::ones({2}, options),
                                     torch::ones({4}, options)};
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer(
      torch::optim::SGD(w, 1.0), kolo::NamedTensors{{"a", w[0]}, {"b", w[1]}, {"c", w[2]}},
      {.op = kolo::ReduceOp::kSum, .groups = Tensors{{w[0], w[1]}}});
  (w[0] * (kolo::rank() + 1)).sum().backward();
  (w[2] * 2).sum().backward();
  EXPECT_EQ(optimizer.pending(), 1U) << "of the group, which waits";
  // 'b' has no gradient on any rank: zeros travel, and 'b' is not changed.
  optimizer.step();
  EXPECT_EQ(optimizer.pending(), 0U);
  EXPECT_DOUBLE_EQ(w[0].grad()[0].item<double>(), kolo::size() * (kolo::size() + 1) / 2.0);
  EXPECT_FALSE(w[1].grad().defined());
  EXPECT_DOUBLE_EQ(w[2].grad()[0].item<double>(), 2.0 * kolo::size());
  // Only the last rank has a gradient; the others get it. The other member of the group has none
  // anywhere.
  optimizer.zero_grad();
  if (kolo::rank() == kolo::size() - 1) (w[1] * 5).sum().backward();
  optimizer.synchronize();
  EXPECT_DOUBLE_EQ(w[1].grad()[0].item<double>(), 5.0);
  EXPECT_FALSE(w[0].grad().defined());
}

TEST(GradientGroups, FailAsAWhole) {
  if (kolo::size() == 1) return;
  const auto options = torch::TensorOptions().requires_grad(true);
  const std::vector<torch::Tensor> w{torch::ones({3}, options), torch::ones({4}, options)};
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer(
      torch::optim::SGD(w, 1.0), kolo::NamedTensors{{"a", w[0]}, {"b", w[1]}}, {.groups = 1});
  for (const auto& weight : w) weight.mutable_grad() = torch::ones_like(weight.detach());
  if (kolo::rank() == 1) w[1].mutable_grad() = torch::ones({5});
  EXPECT_THAT(
      message_of([&] { optimizer.step(); }),
      testing::AllOf(HasSubstr("/b' of its group 'optimizer"), HasSubstr("/group0' has failed: "),
                     HasSubstr("submitted shape [4], but rank 1 submitted shape [5]")));
  EXPECT_EQ(w[0][0].item<float>(), 1.0F) << "no step was made";
}

TEST(GradientGroups, ThatCannotBeAreRefused) {
  const auto message = [](const kolo::GradientGroups& groups) {
    return message_of([&] { Trainer trainer(groups); });
  };
  EXPECT_THAT(message(0), HasSubstr("groups: 0 groups are not possible"));
  EXPECT_THAT(message(-3), HasSubstr("groups: -3 groups are not possible"));
  EXPECT_THAT(message(Names{{"0.bias"}, {"0.bias", "1.bias"}}),
              HasSubstr("'0.bias' is in group 0 and in group 1"));
  EXPECT_THAT(message(Names{{"0.bias", "1.bias"}}),
              HasSubstr("'1.bias' of group 0 is no parameter of the optimizer"));
  EXPECT_THAT(message(Names{{"0.bias"}, {}}), HasSubstr("group 1 is empty"));
  EXPECT_THAT(message(Tensors{{torch::ones({2})}}),
              HasSubstr("tensor 0 of group 0 is no parameter of the optimizer"));
  // A refusal must leave nothing behind that breaks later optimizers.
  static_cast<void>(Trainer({}).train());
}

}  // namespace
