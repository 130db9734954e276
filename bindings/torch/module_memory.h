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

  /// module.load() of the same module, but what was loaded is kept for take_over(). Throws
  /// kInvalidArgument if a tensor does not fit.
  void load(torch::nn::Module& module, torch::serialize::InputArchive& archive);
  /// Copies what was loaded into the old memory.
  void take_over();
  /// module.save() of the same module, as the CPU has it.
  void save(torch::nn::Module& module, torch::serialize::OutputArchive& archive);

 private:
  struct Slot {
    std::string name;
    torch::Tensor tensor;
    torch::Tensor memory;
  };
  void add(const std::string& name, const torch::Tensor& tensor);
  /// The call; the module has its memory again if that throws.
  template <class Call>
  void attempt(const Call& call);
  /// Takes what was loaded out of the module, which has its memory again.
  void set_loaded_aside();
  /// Tensors of other devices are copies on the CPU.
  void show_on_cpu();
  void restore();

  std::vector<Slot> slots_;
  std::vector<torch::Tensor> loaded_;  ///< by slot
};

/// module.save(), as the CPU has it, so that it can be read where this device is not.
void save_module(torch::nn::Module& module, torch::serialize::OutputArchive& archive);

}  // namespace kolo
