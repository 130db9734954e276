// What DataParallel and DistributedDataParallel hand on to the module that they wrap. `Self` is the
// class that derives from it, and has forward(). One thread at a time.
#pragma once

#include <utility>

namespace kolo {

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
  /// So that wrapper->forward() goes through the wrapper as it does for a holder.
  Self* operator->() { return static_cast<Self*>(this); }

  /// The module that was passed; its names carry no prefix: save and load this one.
  M& module() { return module_; }
  const M& module() const { return module_; }

  // As the module's own.
  auto parameters() const { return module_->parameters(); }
  auto named_parameters() const { return module_->named_parameters(); }
  auto buffers() const { return module_->buffers(); }
  auto named_buffers() const { return module_->named_buffers(); }
  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  bool is_training() const { return module_->is_training(); }
  void zero_grad(bool set_to_none = true) { module_->zero_grad(set_to_none); }

 protected:
  explicit ModuleWrapper(M module) : module_(std::move(module)) {}

  M module_;
};

}  // namespace kolo
