// Autocast: until the end of its scope, operations on this thread choose their type as LibTorch's
// autocast does. Matrix products and convolutions run in a half type, sums and losses in float32.
// (The counterpart of PyTorch's torch.autocast.)
//
//   {
//     const kolo::Autocast half(device, {.dtype = torch::kBFloat16});
//     loss = torch::nll_loss(network->forward(input), target);
//   }
//   loss.backward();
//
// - Put forward and loss in its scope, not backward. Backward follows the types of forward by
//   itself.
// - Parameters keep their type, so gradients keep theirs, and kolo sends gradients in that type.
// - It is a guard of one scope and one thread. Guards nest.
#pragma once

#include <kolo/export.h>
#include <torch/types.h>

#include <optional>

namespace kolo {

struct AutocastOptions {
  /// float16 or bfloat16. Absent: the type of the enclosing guard, else LibTorch's default for the
  /// device (bfloat16 on the CPU, float16 on CUDA). float16 needs a GradScaler.
  std::optional<torch::ScalarType> dtype = std::nullopt;
  /// false: switches autocast off inside an enclosing guard.
  bool enabled = true;
  /// Converts each weight once for all its uses, until the end of the outermost guard. Do not use
  /// it for weights that change meanwhile.
  bool cache_enabled = true;
};

class KOLO_API Autocast {
 public:
  /// Throws kInvalidArgument for a type that is not a half type, and kUnsupported for a device that
  /// has no autocast.
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
