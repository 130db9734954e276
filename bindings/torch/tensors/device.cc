// Which device a rank computes on. Any thread.
#include <kolo/torch/device.h>

#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/device_report.h>
#include <kolo/kolo.h>

#include <fmt/format.h>

namespace kolo {
namespace {

/// Why this rank computes on the CPU; empty if it has a CUDA device that LibTorch can use.
std::string lacking() {
  const int ordinal = device_ordinal();  // throws before init
  if (!cuda_built()) return "this build of kolo has no CUDA";
  if (ordinal < 0)
    return fmt::format("rank {} has no CUDA device: {}", rank(), device_report().reason);
  if (!torch::cuda::is_available()) {
    return fmt::format(
        "rank {} has cuda:{}, but this LibTorch cannot use it: kolo was built with "
        "the CPU half of LibTorch alone, or its driver is older than LibTorch's CUDA",
        rank(), ordinal);
  }
  return {};
}

}  // namespace

torch::Device device() {
  if (!lacking().empty()) return torch::kCPU;
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(device_ordinal())};
}

torch::Device device(const std::string& wanted) {
  if (wanted == "auto") return device();
  if (wanted == "cpu") return torch::kCPU;
  if (wanted != "cuda") {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("'{}' is no device; it is auto, cpu or cuda", wanted));
  }
  if (const std::string reason = lacking(); !reason.empty()) {
    raise(ErrorCode::kUnsupported, fmt::format("device cuda is asked for, but {}", reason));
  }
  return device();
}

}  // namespace kolo
