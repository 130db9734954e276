// The memory of a module's tensors while LibTorch loads or saves it. Private to bindings/torch; the
// training loop's thread.
#pragma once

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// A module's tensors before it is loaded. LibTorch gives them other memory and would take any
/// shape; here they keep theirs, which gradients, buckets and optimizers may be tied to.
class ModuleMemory {
 public:
  explicit ModuleMemory(const torch::nn::Module& module);

  /// module.load() of the same module, but what was loaded is kept for take_over(). Throws
  /// kInvalidArgument if a tensor does not fit.
  void load(torch::nn::Module& module, torch::serialize::InputArchive& archive);
  /// Copies what was loaded into the old memory.
  void take_over();

 private:
  struct Slot {
    std::string name;
    torch::Tensor tensor;
    torch::Tensor memory;
  };
  void add(const std::string& name, const torch::Tensor& tensor);
  /// Takes what was loaded out of the module, which has its memory again.
  void set_loaded_aside();
  void restore();

  std::vector<Slot> slots_;
  std::vector<torch::Tensor> loaded_;  ///< by slot
};

/// Has a module's tensors as copies on the CPU, and at its end where they were, so that what is
/// saved can be read where their device is not. An archive takes tensors in and reads their memory
/// when it is written itself, so this must outlive that.
class ModuleOnCpu {
 public:
  explicit ModuleOnCpu(const torch::nn::Module& module);
  ~ModuleOnCpu();
  ModuleOnCpu(const ModuleOnCpu&) = delete;
  ModuleOnCpu& operator=(const ModuleOnCpu&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> moved_;  ///< with the memory of before
};

}  // namespace kolo
