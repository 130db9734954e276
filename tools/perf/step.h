// The communication of a training step through negotiated submission, compared with its parts: one
// all-reduce of the same bytes in one piece, and packing and unpacking by blocks. Called by main on
// every rank.
#pragma once

#include "tools/perf/buffer.h"
#include "tools/perf/engine.h"

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kolo::perf {

/// Number of elements of each gradient of ResNet-50 (He et al. 2015): 161 gradients with 25.5 M
/// floats, in the order in which backward makes them ready (last layer first).
std::vector<std::int64_t> resnet50_gradients();

struct StepOptions {
  std::string name = "resnet50";  ///< or "small": 1,000 tensors of 4 floats
  int iterations = 20;
  int warmup = 3;
  Memory memory = Memory::kPrivate;
  Gpu* gpu = nullptr;  ///< its memory is measured, with negotiated submission only
};

/// Collective. Measures the three in turn, A B C A B C …, with each peer's all-reduce in one piece
/// among them. Results are verified outside the timing and printed on rank 0.
nlohmann::json run_step(const StepOptions& options,
                        const std::vector<std::unique_ptr<Engine>>& peers);

}  // namespace kolo::perf
