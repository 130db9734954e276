// Gradients of the collectives against finite differences, in float64. The loss is the sum over
// ranks of a different weighting of each rank's output. Second derivatives likewise: they
// differentiate a penalty, the sum over ranks of the squares of each rank's gradient of that loss.
#include "tests/support/warnings.h"

#include <kolo/torch.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

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

/// The penalty for this rank's `input`, with a graph.
torch::Tensor penalty_of(const Call& call, const torch::Tensor& input) {
  const torch::Tensor gradient =
      torch::autograd::grad({loss_of(call(input))}, {input}, {}, true, /*create_graph=*/true)[0];
  return (gradient.pow(2) * (1 + weights_of(gradient).pow(2))).sum();
}

using Value = std::function<torch::Tensor(const torch::Tensor& input)>;

/// Checks that backward() gives the gradient of the sum of all ranks' values.
void expect_gradient_of(const Value& value, std::int64_t rows, double tolerance) {
  torch::manual_seed(static_cast<std::uint64_t>(11 + kolo::rank()));
  auto input = torch::rand({rows, 2}, torch::kFloat64).requires_grad_();
  value(input).backward();
  const torch::Tensor gradient = input.grad();
  ASSERT_EQ(gradient.sizes(), input.sizes());

  constexpr double kStep = 1e-5;
  for (int owner = 0; owner < kolo::size(); ++owner) {
    const auto elements = static_cast<std::int64_t>(
        kolo::broadcast(torch::tensor(input.numel()), owner).item<std::int64_t>());
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto value_at = [&](double step) {
        auto moved = input.detach().clone();
        if (kolo::rank() == owner) moved.view(-1)[i] += step;
        return kolo::allreduce(value(moved.requires_grad_()).detach()).item<double>();
      };
      const double expected = (value_at(kStep) - value_at(-kStep)) / (2 * kStep);
      if (kolo::rank() == owner) {
        EXPECT_NEAR(gradient.view(-1)[i].item<double>(), expected,
                    tolerance * (1 + std::abs(expected)))
            << "element " << i;
      }
    }
  }
}

void expect_right_gradient(const Call& call, std::int64_t rows) {
  expect_gradient_of([&](const auto& input) { return loss_of(call(input)); }, rows, 1e-6);
  SCOPED_TRACE("second derivatives");
  expect_gradient_of([&](const auto& input) { return penalty_of(call, input); }, rows, 1e-6);
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

TEST(Autograd, WhatItDoesNotSeeIsWarnedOfOnce) {
  kolo::test::Warnings warnings;
  const auto input = torch::ones({kolo::size(), 1}).requires_grad_();
  for (int i = 0; i < 2; ++i) {
    kolo::allgather(input);
    kolo::allgather(input.detach());
    kolo::autograd::allgather(input);
    const torch::NoGradGuard no_grad;
    kolo::alltoall(input);
  }
  ASSERT_EQ(warnings.all.size(), 1U);
  EXPECT_NE(warnings.all[0].find("kolo::allgather() was given a tensor that requires a gradient"),
            std::string::npos);
  kolo::reducescatter(input);
  EXPECT_EQ(warnings.all.size(), 2U);
}

TEST(Autograd, NothingFlowsBackToOthersThanTheRoot) {
  auto input = torch::ones({2}).requires_grad_();
  const auto endless = torch::full({2}, std::numeric_limits<float>::infinity());
  kolo::autograd::broadcast(input, 0).backward(endless);
  EXPECT_TRUE(torch::equal(input.grad(), kolo::rank() == 0 ? endless : torch::zeros({2})));
}

}  // namespace
