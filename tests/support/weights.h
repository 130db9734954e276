// Weights under a DistributedOptimizer, for tests on all ranks at once of their gradients.
// Header-only.
#pragma once

#include "tests/support/ddp_ranks.h"

#include <kolo/torch.h>

#include <gtest/gtest.h>

namespace kolo::test {

inline const auto kLeaf = torch::TensorOptions(torch::kFloat64).requires_grad(true);

inline double ranks_sum() { return kolo::size() * (kolo::size() + 1) / 2.0; }
inline double ranks_mean() { return ranks_sum() / kolo::size(); }
inline bool is_last() { return kolo::rank() == kolo::size() - 1; }

inline void expect_gradient(const torch::Tensor& parameter, double value) {
  ASSERT_TRUE(parameter.grad().defined());
  EXPECT_TRUE(torch::allclose(parameter.grad(), torch::full_like(parameter.grad(), value)))
      << parameter.grad() << " instead of " << value;
}

/// Three weights, with plain gradient descent of rate 1.
struct Weights {
  torch::Tensor a = torch::ones({3}, kLeaf);
  torch::Tensor b = torch::ones({2}, kLeaf);
  torch::Tensor c = torch::ones({4}, kLeaf);
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer;

  explicit Weights(const kolo::DistributedOptimizerOptions& options = {})
      : optimizer(torch::optim::SGD({a, b, c}, 1.0),
                  kolo::NamedTensors{{"a", a}, {"b", b}, {"c", c}}, options) {}
  torch::Tensor all() const { return ((a.sum() + b.sum() + c.sum()) * mine()); }
};

}  // namespace kolo::test
