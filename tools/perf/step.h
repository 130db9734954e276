// A training step's communication: the 161 gradients of ResNet-50 (He et al. 2015), 25.5 M floats,
// beside its parts: one contiguous ring of the same bytes, and packing and unpacking by blocks.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace kolo::perf {

/// Elements of each gradient, in the order in which backward makes them ready (last layer first).
std::vector<std::int64_t> resnet50_gradients();

struct StepOptions {
  int iterations = 20;
  int warmup = 3;
};

/// Collective. The three are measured in turn, A B C A B C …, and printed on rank 0.
nlohmann::json run_step(const StepOptions& options);

}  // namespace kolo::perf
