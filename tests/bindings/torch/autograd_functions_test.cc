// Gradients of the collectives against differences, in float64: the loss is the sum over ranks of a
// different weighting of each rank's output.
#include <kolo/torch.h>

#include <gtest/gtest.h>

#include <functional>

namespace {

using Call = std::function<torch::Tensor(const torch::Tensor&)>;

torch::Tensor weights_of(const torch::Tensor& output) {
  return torch::sin(torch::arange(output.numel(), torch::kFloat64) + 7.0 * kolo::rank())
      .reshape(output.sizes());
}

/// Nonlinear, so that a gradient that ignores the incoming one is wrong.
torch::Tensor loss_of(const torch::Tensor& output) {
  return (output.pow(2) * weights_of(output)).sum();
}

void expect_right_gradient(const Call& call, std::int64_t rows) {
  torch::manual_seed(11 + kolo::rank());
  auto input = torch::rand({rows, 2}, torch::kFloat64).requires_grad_();
  loss_of(call(input)).backward();
  const torch::Tensor gradient = input.grad();
  ASSERT_EQ(gradient.sizes(), input.sizes());

  constexpr double kStep = 1e-5;
  for (int owner = 0; owner < kolo::size(); ++owner) {
    const auto elements = static_cast<std::int64_t>(
        kolo::broadcast(torch::tensor(input.numel()), owner).item<std::int64_t>());
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto loss_at = [&](double step) {
        auto moved = input.detach().clone();
        if (kolo::rank() == owner) moved.view(-1)[i] += step;
        return kolo::allreduce(loss_of(call(moved)).detach()).item<double>();
      };
      const double expected = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
      if (kolo::rank() == owner) {
        EXPECT_NEAR(gradient.view(-1)[i].item<double>(), expected, 1e-6) << "element " << i;
      }
    }
  }
}

TEST(Autograd, Allreduce) {
  expect_right_gradient([](const auto& x) { return kolo::autograd::allreduce(x); }, 2);
  expect_right_gradient(
      [](const auto& x) {
        return kolo::autograd::allreduce(
            x, {.op = kolo::ReduceOp::kAverage, .prescale = 0.5, .postscale = 3.0});
      },
      2);
}

TEST(Autograd, Broadcast) {
  for (int root = 0; root < kolo::size(); ++root)
    expect_right_gradient([&](const auto& x) { return kolo::autograd::broadcast(x, root); }, 2);
}

TEST(Autograd, AllgatherOfUnevenRows) {
  expect_right_gradient([](const auto& x) { return kolo::autograd::allgather(x); },
                        kolo::rank() + 1);
}

TEST(Autograd, AlltoallOfUnevenSplits) {
  std::vector<std::int64_t> splits;
  std::int64_t rows = 0;
  for (int r = 0; r < kolo::size(); ++r) {
    splits.push_back((kolo::rank() + 2 * r) % 3);
    rows += splits.back();
  }
  expect_right_gradient([&](const auto& x) { return kolo::autograd::alltoall(x, splits); }, rows);
}

TEST(Autograd, ReducescatterOfUnevenRows) {
  const std::int64_t rows = kolo::size() + 1;
  expect_right_gradient([](const auto& x) { return kolo::autograd::reducescatter(x); }, rows);
  expect_right_gradient(
      [](const auto& x) {
        return kolo::autograd::reducescatter(x, {.op = kolo::ReduceOp::kAverage, .postscale = 2.0});
      },
      rows);
}

}  // namespace
