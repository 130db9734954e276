// The network and the data of the Accelerator's tests.
#pragma once

#include <kolo/torch.h>

#include <gtest/gtest.h>

namespace kolo::test {

inline torch::nn::Sequential make_network() {
  torch::manual_seed(11);
  return torch::nn::Sequential(torch::nn::Linear(4, 7), torch::nn::Tanh(), torch::nn::Linear(7, 2));
}

/// A rank's batch of a step, with `rows` rows.
inline torch::Tensor batch_of(int step, int rank, std::int64_t rows = 3) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + rank));
  return torch::randn({rows, 4});
}

/// The batches of all ranks as one.
inline torch::Tensor batch_of_all(int step) {
  std::vector<torch::Tensor> all;
  for (int r = 0; r < kolo::size(); ++r) all.push_back(batch_of(step, r));
  return torch::cat(all);
}

inline void expect_close(const torch::nn::Module& one, const torch::nn::Module& other,
                         double tolerance) {
  for (const auto& item : one.named_parameters()) {
    EXPECT_TRUE(
        torch::allclose(item.value(), other.named_parameters()[item.key()], tolerance, tolerance))
        << item.key();
  }
}

}  // namespace kolo::test
