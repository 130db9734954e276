// GradientReducer: the hooks that start a gradient's all-reduce, and the wait for all of them.
// Hooks run on the thread that autograd uses for a leaf (on the CPU the one that calls backward).
#include "bindings/torch/tensor_memory.h"

#include <kolo/torch/distributed_optimizer.h>
#include <kolo/torch/functions.h>

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <string>
#include <utility>

namespace kolo {
namespace {

/// The n-th optimizer of this process; ranks make theirs in the same order.
std::string next_prefix() {
  static std::atomic<int> count = 0;
  return "optimizer" + std::to_string(count.fetch_add(1)) + "/";
}

struct Parameter {
  std::string name;
  torch::Tensor tensor;
  torch::Tensor reduced;  ///< the gradient that this reducer has last submitted
  torch::Tensor earlier;  ///< reduced gradients of earlier passes, to be added
  TensorWork work;        ///< valid: submitted and not yet synchronized
  unsigned accumulation_hook = 0;
  bool hooked = false;
  bool absent = false;  ///< what was submitted is zeros, for want of a gradient
};

bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() && b.defined() && a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl();
}

}  // namespace

struct GradientReducer::State : std::enable_shared_from_this<GradientReducer::State> {
  DistributedOptimizerOptions options;
  std::string prefix = next_prefix();
  std::deque<Parameter> parameters;  // hooks refer to them

  class Hook;

  void add(torch::Tensor tensor, std::string name);
  void install(Parameter& parameter);
  void uninstall(Parameter& parameter);
  void submit(Parameter& parameter, const torch::Tensor& gradient, bool absent);
  void before_accumulation(Parameter& parameter);
  void after_accumulation(Parameter& parameter);
  void submit_missing(Parameter& parameter);
  void finish(Parameter& parameter);
};

/// In the one slot that a tensor has for such hooks: runs whatever was there before, too.
class GradientReducer::State::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::weak_ptr<State> state, Parameter& parameter,
       std::unique_ptr<torch::autograd::PostAccumulateGradHook> next)
      : state_(std::move(state)), parameter_(&parameter), next_(std::move(next)) {}

  void operator()(const torch::Tensor& tensor) override {
    if (next_) (*next_)(tensor);
    if (const auto state = state_.lock()) state->after_accumulation(*parameter_);
  }

  /// The full name of the parameter, if its reducer is still there.
  std::optional<std::string> owner() const {
    const auto state = state_.lock();
    return state ? std::optional(state->prefix + parameter_->name) : std::nullopt;
  }
  bool belongs_to(const State& state) const { return state_.lock().get() == &state; }
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> take_next() { return std::move(next_); }

 private:
  std::weak_ptr<State> state_;
  Parameter* parameter_;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> next_;
};

void GradientReducer::State::add(torch::Tensor tensor, std::string name) {
  auto* const existing =
      dynamic_cast<Hook*>(torch::autograd::impl::post_acc_grad_hooks(tensor).get());
  if (existing != nullptr) {
    if (const auto owner = existing->owner()) {
      raise(ErrorCode::kInvalidArgument, "parameter '" + name +
                                             "' is in another DistributedOptimizer already, as '" +
                                             *owner + "'; a parameter belongs to one");
    }
  }
  parameters.push_back({.name = std::move(name), .tensor = std::move(tensor)});
  install(parameters.back());
}

void GradientReducer::State::install(Parameter& parameter) {
  // Autograd takes hooks of tensors that require a gradient only; a frozen parameter gets its own
  // when it is first seen unfrozen.
  if (parameter.hooked || !parameter.tensor.requires_grad()) return;
  auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter.tensor);
  torch::autograd::impl::set_post_acc_grad_hooks(
      parameter.tensor, std::make_unique<Hook>(weak_from_this(), parameter, std::move(slot)));
  parameter.accumulation_hook =
      parameter.tensor.register_hook([weak = weak_from_this(), &parameter](const torch::Tensor&) {
        if (const auto state = weak.lock()) state->before_accumulation(parameter);
      });
  parameter.hooked = true;
}

void GradientReducer::State::uninstall(Parameter& parameter) {
  if (!parameter.hooked) return;
  parameter.tensor.remove_hook(parameter.accumulation_hook);
  auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter.tensor);
  auto* const mine = dynamic_cast<Hook*>(slot.get());
  if (mine != nullptr && mine->belongs_to(*this)) slot = mine->take_next();
}

void GradientReducer::State::submit(Parameter& parameter, const torch::Tensor& gradient,
                                    bool absent) {
  parameter.work = start_allreduce(gradient, gradient,
                                   {.op = options.op, .name = prefix + parameter.name}, absent);
  parameter.reduced = gradient;
  parameter.absent = absent;
}

void GradientReducer::State::before_accumulation(Parameter& parameter) {
  if (parameter.work.valid()) {
    parameter.work.wait();
    parameter.work = {};
  }
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parameter.tensor.mutable_grad();
  if (is_same(gradient, parameter.reduced)) {
    // What is reduced already must not be reduced again with the new pass.
    parameter.earlier =
        parameter.earlier.defined() ? parameter.earlier.add_(gradient) : std::move(gradient);
    gradient = torch::Tensor();
  } else {
    parameter.earlier = torch::Tensor();  // somebody has cleared the gradient meanwhile
  }
  parameter.reduced = torch::Tensor();
}

void GradientReducer::State::after_accumulation(Parameter& parameter) {
  submit(parameter, parameter.tensor.grad(), false);
}

void GradientReducer::State::submit_missing(Parameter& parameter) {
  install(parameter);
  if (!parameter.tensor.requires_grad() || parameter.work.valid()) return;
  torch::Tensor gradient = parameter.tensor.grad();
  if (gradient.defined() && !is_same(gradient, parameter.reduced)) {
    submit(parameter, gradient, false);  // set by hand
    return;
  }
  // No new gradient on this rank. Others may have one, to which an old one is still added.
  const torch::NoGradGuard no_grad;
  parameter.earlier = std::move(gradient);
  parameter.tensor.mutable_grad() = torch::Tensor();
  submit(parameter,
         torch::zeros(parameter.tensor.sizes(), parameter.tensor.options().requires_grad(false)),
         true);
}

void GradientReducer::State::finish(Parameter& parameter) {
  if (!parameter.work.valid()) return;
  TensorWork work = std::exchange(parameter.work, {});
  const torch::Tensor result = work.wait();
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parameter.tensor.mutable_grad();
  torch::Tensor earlier = std::exchange(parameter.earlier, {});
  if (parameter.absent) {
    if (gradient.defined()) return;  // set by hand meanwhile
    gradient = work.contributors() > 0 ? result : std::exchange(earlier, {});
  } else if (!is_same(gradient, parameter.reduced)) {
    return;  // cleared or replaced by hand
  }
  if (earlier.defined()) gradient.add_(earlier);
  parameter.reduced = gradient;
}

GradientReducer::GradientReducer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                 const NamedTensors& named,
                                 const DistributedOptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  static_cast<void>(size());  // an error before init
  state_->options = options;
  std::map<const void*, std::string> names;
  std::map<std::string, const void*> tensors;
  for (const auto& [name, tensor] : named) {
    const void* const key = tensor.unsafeGetTensorImpl();
    if (const auto [it, is_new] = tensors.emplace(name, key); !is_new && it->second != key) {
      raise(ErrorCode::kInvalidArgument, "two named parameters are called '" + name + "'");
    }
    if (const auto [it, is_new] = names.emplace(key, name); !is_new && it->second != name) {
      raise(ErrorCode::kInvalidArgument,
            "one parameter is called both '" + it->second + "' and '" + name + "'; name it once");
    }
  }
  try {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
        const torch::Tensor& tensor = groups[g].params()[i];
        const auto name = names.find(tensor.unsafeGetTensorImpl());
        if (name == names.end()) {
          raise(ErrorCode::kInvalidArgument,
                "parameter " + std::to_string(i) + " of group " + std::to_string(g) +
                    " of the optimizer is not among the named parameters; pass the "
                    "named_parameters() of the same module");
        }
        state_->add(tensor, name->second);
      }
    }
  } catch (...) {
    for (Parameter& parameter : state_->parameters) state_->uninstall(parameter);
    throw;
  }
}

GradientReducer::~GradientReducer() {
  for (Parameter& parameter : state_->parameters) {
    parameter.work.drain();
    state_->uninstall(parameter);
  }
}

void GradientReducer::add_group(std::size_t index, const torch::optim::OptimizerParamGroup& group) {
  for (std::size_t i = 0; i < group.params().size(); ++i) {
    state_->add(group.params()[i],
                "group" + std::to_string(index) + ".parameter" + std::to_string(i));
  }
}

void GradientReducer::synchronize() {
  std::exception_ptr first;
  const auto attempt = [&](auto&& action) {
    try {
      action();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  };
  for (Parameter& parameter : state_->parameters) {
    attempt([&] { state_->submit_missing(parameter); });
  }
  for (Parameter& parameter : state_->parameters) {
    attempt([&] { state_->finish(parameter); });
  }
  if (first) std::rethrow_exception(first);
}

void GradientReducer::discard() {
  for (Parameter& parameter : state_->parameters) {
    parameter.work.drain();
    parameter.work = {};
    parameter.reduced = torch::Tensor();
    parameter.earlier = torch::Tensor();
    state_->install(parameter);
  }
}

std::size_t GradientReducer::pending() const {
  std::size_t count = 0;
  for (const Parameter& parameter : state_->parameters) count += parameter.work.valid() ? 1 : 0;
  return count;
}

}  // namespace kolo
