// Autocast: until its end, operations on this thread choose their type as LibTorch's autocast does:
// matrix products and convolutions in a half type, sums and losses in float32. (What PyTorch's
// torch.autocast is to Python.) Wrap forward and loss in it, not backward, which follows the types
// of forward by itself. Parameters stay as they are, so gradients and what kolo sends do, too.
//
//   {
//     const kolo::Autocast half(device, {.dtype = torch::kBFloat16});
//     loss = torch::nll_loss(network->forward(input), target);
//   }
//   loss.backward();
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

#include <optional>

namespace kolo {

struct AutocastOptions {
  /// float16 or bfloat16; absent: that of the guard around this one, else LibTorch's choice for the
  /// device (bfloat16 on the CPU, float16 on CUDA). float16 wants a GradScaler.
  std::optional<torch::ScalarType> dtype = std::nullopt;
  /// false: switches autocast off inside one that is on.
  bool enabled = true;
  /// Weights are converted once for all their uses until the outermost guard's end. Not for weights
  /// that change meanwhile.
  bool cache_enabled = true;
};

/// A guard of one scope and thread; guards nest.
class KOLO_API Autocast {
 public:
  /// Throws kInvalidArgument for a type that is no half type, kUnsupported for a device that has no
  /// autocast.
  [[nodiscard]] explicit Autocast(torch::Device device, const AutocastOptions& options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType type_;
  bool enabled_before_;
  torch::ScalarType dtype_before_;
  bool cache_before_;
};

}  // namespace kolo
