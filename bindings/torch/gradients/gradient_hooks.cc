#include "bindings/torch/gradients/gradient_hooks.h"

#include "bindings/core/host_exceptions.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/kolo.h>

#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <utility>

namespace kolo {
namespace {

/// Occupies the only slot that a tensor has for such hooks, and runs the hook that was there
/// before.
class AfterAccumulation final : public torch::autograd::PostAccumulateGradHook {
 public:
  AfterAccumulation(std::weak_ptr<GradientListener> listener, std::size_t index,
                    std::unique_ptr<torch::autograd::PostAccumulateGradHook> next)
      : listener_(std::move(listener)), index_(index), next_(std::move(next)) {}

  void operator()(const torch::Tensor& tensor) override {
    if (next_) (*next_)(tensor);
    const auto listener = listener_.lock();
    if (!listener) return;
    const auto what = [&] {
      return fmt::format("backward failed at the gradient '{}'", listener->full_name(index_));
    };
    throwing_for_host(
        [&] { abort_on_failure([&] { listener->after_accumulation(index_); }, what); });
  }

  std::optional<std::string> owner() const {
    const auto listener = listener_.lock();
    return listener ? std::optional(listener->full_name(index_)) : std::nullopt;
  }
  bool belongs_to(const std::weak_ptr<GradientListener>& listener) const {
    return !listener_.owner_before(listener) && !listener.owner_before(listener_);
  }
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> take_next() { return std::move(next_); }

 private:
  std::weak_ptr<GradientListener> listener_;
  std::size_t index_;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> next_;
};

AfterAccumulation* hook_of(const torch::Tensor& leaf) {
  // A leaf that never required a gradient may lack autograd's data.
  if (torch::autograd::impl::get_autograd_meta(leaf) == nullptr) return nullptr;
  return dynamic_cast<AfterAccumulation*>(torch::autograd::impl::post_acc_grad_hooks(leaf).get());
}

/// Whether the current backward only returns the gradient to its caller, as autograd::grad() does,
/// and adds it to no leaf. The tensor's hooks run even then.
bool is_only_captured(const torch::Tensor& leaf) {
  const auto* const tasks = torch::autograd::get_current_graph_task_exec_info();
  if (tasks == nullptr || tasks->empty()) return false;  // no restriction: every node runs
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  const auto task = tasks->find(accumulator.get());
  return task == tasks->end() || !task->second.needed_;
}

}  // namespace

GradientHooks::GradientHooks(torch::Tensor leaf, const std::weak_ptr<GradientListener>& listener,
                             std::size_t index)
    : leaf_(std::move(leaf)), listener_(listener) {
  auto& slot = torch::autograd::impl::post_acc_grad_hooks(leaf_);
  torch::autograd::impl::set_post_acc_grad_hooks(
      leaf_, std::make_unique<AfterAccumulation>(listener, index, std::move(slot)));
  // The hook belongs to the leaf, so it must not own the leaf.
  const c10::weak_intrusive_ptr<c10::TensorImpl> impl(leaf_.getIntrusivePtr());
  before_ = leaf_.register_hook([weak = listener, index, impl](const torch::Tensor& gradient) {
    const auto alive = weak.lock();
    if (!alive || !gradient.defined() || is_only_captured(torch::Tensor(impl.lock()))) return;
    throwing_for_host([&] { alive->before_accumulation(index); });
  });
}

GradientHooks& GradientHooks::operator=(GradientHooks&& other) noexcept {
  if (this != &other) {
    remove();
    leaf_ = std::move(other.leaf_);
    listener_ = std::move(other.listener_);
    before_ = other.before_;
  }
  return *this;
}

GradientHooks::~GradientHooks() { remove(); }

void GradientHooks::remove() {
  if (!leaf_.defined()) return;
  leaf_.remove_hook(before_);
  AfterAccumulation* const mine = hook_of(leaf_);
  if (mine != nullptr && mine->belongs_to(listener_)) {
    torch::autograd::impl::post_acc_grad_hooks(leaf_) = mine->take_next();
  }
  leaf_.reset();
}

std::optional<std::string> GradientHooks::owner_of(const torch::Tensor& leaf) {
  const AfterAccumulation* const hook = hook_of(leaf);
  return hook == nullptr ? std::nullopt : hook->owner();
}

void refuse_graph(const char* reducer, const std::string& name, const torch::Tensor& gradient) {
  if (!gradient.defined() || !gradient.requires_grad()) return;
  raise(ErrorCode::kUnsupported,
        std::string(reducer) + ": the gradient of parameter '" + name +
            "' has a graph of its own, as backward() with create_graph makes it, and the average "
            "over the ranks would not be in it; for a penalty of gradients use "
            "torch::autograd::grad() with create_graph, and backward() of the loss without");
}

}  // namespace kolo
