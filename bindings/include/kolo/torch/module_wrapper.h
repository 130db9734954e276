// The calls that DataParallel and DistributedDataParallel forward to the module that they wrap.
// `Self` is the derived class, which has forward(). One thread at a time.
//
//   kolo::DistributedDataParallel ddp(network);  // derives from ModuleWrapper
//   torch::optim::SGD optimizer(ddp.parameters(), 0.1);
//   torch::Tensor output = ddp(input);  // as ddp.forward(input)
//   torch::save(ddp.module(), "model.pt");
#pragma once

#include <kolo/export.h>

#include <utility>

namespace kolo {

/// Throws kInvalidArgument for a wrapper without a module.
[[noreturn]] KOLO_API void refuse_no_module();

/// `M` is a module holder (TORCH_MODULE, torch::nn::Sequential, …) or a shared pointer to a module.
template <class Self, class M>
class ModuleWrapper {
  static_assert(
      requires(const M& module) { module->named_parameters().pairs(); },
      "M is a module holder (TORCH_MODULE, torch::nn::Sequential, ...) or a shared_ptr to a "
      "torch::nn::Module: std::make_shared<Net>() instead of Net. The parameters of a "
      "torch::jit::Module go to DistributedOptimizer, by name");

 public:
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return static_cast<Self&>(*this).forward(std::forward<Arguments>(arguments)...);
  }
  /// Makes wrapper->forward() go through the wrapper, as for a module holder.
  Self* operator->() { return static_cast<Self*>(this); }

  /// The module that was passed. Its names have no prefix, so save and load this one.
  M& module() { return module_; }
  const M& module() const { return module_; }

  // These call the module's own functions.
  auto parameters() const { return held()->parameters(); }
  auto named_parameters() const { return held()->named_parameters(); }
  auto buffers() const { return held()->buffers(); }
  auto named_buffers() const { return held()->named_buffers(); }
  void train(bool on = true) { held()->train(on); }
  void eval() { held()->eval(); }
  bool is_training() const { return held()->is_training(); }
  void zero_grad(bool set_to_none = true) { held()->zero_grad(set_to_none); }

 protected:
  explicit ModuleWrapper(M module) : module_(std::move(module)) { static_cast<void>(held()); }

  /// The module. Throws kInvalidArgument if there is none: an empty one was passed, or this was
  /// moved away.
  M& held() {
    if (!module_) refuse_no_module();
    return module_;
  }
  const M& held() const {
    if (!module_) refuse_no_module();
    return module_;
  }

  M module_;
};

}  // namespace kolo
