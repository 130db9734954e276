// The memory of a module's tensors while LibTorch loads or saves the module. Private to
// bindings/torch; the training loop's thread.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// A module's tensors before a load. LibTorch's load() replaces their memory and accepts any shape.
/// Here they keep their memory, because gradients, buckets and optimizers may refer to it.
class ModuleMemory {
 public:
  explicit ModuleMemory(const torch::nn::Module& module);

  /// Calls load() of the same module, but keeps the loaded tensors for take_over(). Throws
  /// kInvalidArgument if a tensor does not fit.
  void load(torch::nn::Module& module, torch::serialize::InputArchive& archive);
  /// Copies the loaded tensors into the old memory.
  void take_over();

 private:
  struct Slot {
    std::string name;
    torch::Tensor tensor;
    torch::Tensor memory;
  };
  void add(const std::string& name, const torch::Tensor& tensor);
  /// Takes the loaded tensors out of the module and gives the module its memory back.
  void set_loaded_aside();
  void restore();

  std::vector<Slot> slots_;
  std::vector<torch::Tensor> loaded_;  ///< by slot
};

/// Replaces a module's tensors by copies on the CPU until destroyed, so that the saved archive can
/// be read on hosts without their device. An archive reads the tensors' memory only when it is
/// written, so this object must outlive the writing.
class ModuleOnCpu {
 public:
  explicit ModuleOnCpu(const torch::nn::Module& module);
  ~ModuleOnCpu();
  ModuleOnCpu(const ModuleOnCpu&) = delete;
  ModuleOnCpu& operator=(const ModuleOnCpu&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> moved_;  ///< with their former memory
};

}  // namespace kolo
