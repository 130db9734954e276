// The memory of a module's tensors while LibTorch loads or saves it. Private to bindings/torch; the
// training loop's thread.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace kolo {

/// A module's tensors before it is loaded. LibTorch gives them other memory and would take any
/// shape; here they keep theirs, which gradients, buckets and optimizers may be tied to.
class ModuleMemory {
 public:
  explicit ModuleMemory(const torch::nn::Module& module);

  /// Keeps what was loaded for take_over(), and gives the module its memory back. Throws
  /// kInvalidArgument if a tensor does not fit.
  void set_loaded_aside();
  /// Copies what was loaded into the old memory.
  void take_over();
  /// Until restore(), tensors of other devices are copies on the CPU.
  void show_on_cpu();
  void restore();

 private:
  struct Slot {
    std::string name;
    torch::Tensor tensor;
    torch::Tensor memory;
  };
  void add(const std::string& name, const torch::Tensor& tensor);

  std::vector<Slot> slots_;
  std::vector<torch::Tensor> loaded_;  ///< by slot
};

/// module.save(), as the CPU has it, so that it can be read where this device is not.
void save_module(torch::nn::Module& module, torch::serialize::OutputArchive& archive);

}  // namespace kolo
