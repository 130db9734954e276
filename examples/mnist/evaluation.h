// What all ranks work out together: accuracy on the test digits, and whether they hold the same
// parameters. Called by main between epochs; collective, the same calls on every rank.
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

/// Every digit is counted once, on the rank that its position modulo the number of ranks tells.
Score evaluate(Network& network, const Digits& digits, torch::Device device);

/// A hash of all parameters and buffers of each rank, bit by bit.
std::vector<std::uint64_t> parameter_hashes(const torch::nn::Module& module);

}  // namespace mnist
