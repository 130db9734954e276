// Collective evaluation: the accuracy on the test digits, and whether all ranks hold the same
// parameters. main calls it between epochs; every rank makes the same calls.
#pragma once

#include "examples/mnist/digits.h"
#include "examples/mnist/network.h"

#include <cstdint>
#include <vector>

namespace mnist {

struct Score {
  double loss = 0;      ///< mean negative log-likelihood
  double accuracy = 0;  ///< 0 … 1
  std::int64_t count = 0;
};

/// Counts each digit on one rank: the digit's position modulo the number of ranks.
Score evaluate(Network& network, const Digits& digits, torch::Device device);

/// By rank, a hash over the bits of all parameters and buffers.
std::vector<std::uint64_t> parameter_hashes(const torch::nn::Module& module);

}  // namespace mnist
