#include "bindings/torch/gradients/optimizer_archive.h"

#include "bindings/torch/gradients/shard_layout.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/kolo.h>

#include <functional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Restores, when destroyed, what was taken out of an optimizer.
class PutBack {
 public:
  PutBack() = default;
  ~PutBack() {
    for (auto put_back = all_.rbegin(); put_back != all_.rend(); ++put_back) (*put_back)();
  }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

  /// Gives `member` the value `stand_in` until then. Calls `before`, if any, before it restores.
  template <class T>
  void replace(T& member, T stand_in, std::function<void()> before = {}) {
    T taken = std::exchange(member, std::move(stand_in));
    all_.emplace_back([&member, taken = std::move(taken), before = std::move(before)]() mutable {
      if (before) before();
      member = std::move(taken);
    });
  }

 private:
  std::vector<std::function<void()>> all_;
};

/// Takes the scratch buffers out of an LBFGS.
void take_scratch(torch::optim::Optimizer& optimizer, PutBack& put_back) {
  if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) == nullptr) return;
  for (auto& [key, state] : optimizer.state()) {
    auto& scratch = static_cast<torch::optim::LBFGSParamState&>(*state).al();
    put_back.replace(scratch, {});
  }
}

/// Calls `move` with each tensor of the optimizer's state and its parameter. Skips the states of
/// optimizers that are not LibTorch's.
template <class Move>
void for_each_tensor(torch::optim::Optimizer& optimizer, const Move& move) {
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      const auto it = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (it == optimizer.state().end()) continue;
      if (auto* const lbfgs = dynamic_cast<torch::optim::LBFGSParamState*>(it->second.get())) {
        for (torch::Tensor* tensor : {&lbfgs->d(), &lbfgs->H_diag(), &lbfgs->prev_flat_grad()}) {
          move(*tensor, parameter);
        }
        for (torch::Tensor& tensor : lbfgs->old_dirs()) move(tensor, parameter);
        for (torch::Tensor& tensor : lbfgs->old_stps()) move(tensor, parameter);
        for (torch::Tensor& tensor : lbfgs->ro()) move(tensor, parameter);
      } else if (const auto tensors = known_tensors_of(*it->second)) {
        for (torch::Tensor* const tensor : *tensors) move(*tensor, parameter);
      }
    }
  }
}

/// The reader of an archive may lack the devices of the writer, or number them differently.
void move_to_cpu(torch::optim::Optimizer& optimizer, PutBack& put_back) {
  for_each_tensor(optimizer, [&](torch::Tensor& tensor, const torch::Tensor&) {
    if (tensor.defined() && !tensor.is_cpu()) put_back.replace(tensor, tensor.cpu());
  });
}

/// Replaces every later listing of a parameter by a stand-in. LibTorch's load() would move the
/// state to the first listing and a null pointer to the next.
void list_once(torch::optim::Optimizer& optimizer, PutBack& put_back) {
  std::set<const void*> seen;
  for (auto& group : optimizer.param_groups()) {
    for (torch::Tensor& parameter : group.params()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      put_back.replace(parameter, torch::empty({0}), [&optimizer, &parameter] {
        optimizer.state().erase(parameter.unsafeGetTensorImpl());
      });
    }
  }
}

}  // namespace

void save_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::OutputArchive& archive) {
  PutBack put_back;
  take_scratch(optimizer, put_back);
  move_to_cpu(optimizer, put_back);
  optimizer.save(archive);
}

OptimizerBefore::OptimizerBefore(torch::optim::Optimizer& optimizer)
    : optimizer_(optimizer),
      sharded_(dynamic_cast<ShardedState*>(&optimizer)),
      loaded_(sharded_ != nullptr ? sharded_->loaded_state() : 0) {
  std::swap(state_, optimizer.state());
  for (const auto& group : optimizer.param_groups()) options_.push_back(group.options().clone());
}

void OptimizerBefore::restore() {
  std::swap(state_, optimizer_.state());
  for (std::size_t g = 0; g < options_.size(); ++g) {
    optimizer_.param_groups()[g].set_options(std::move(options_[g]));
  }
  if (sharded_ != nullptr) sharded_->set_loaded_state(loaded_);
}

void load_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::InputArchive& archive) {
  // LibTorch's load() only adds to the state.
  optimizer.state().clear();
  {
    PutBack put_back;
    list_once(optimizer, put_back);
    optimizer.load(archive);
  }
  check_ties(optimizer);
  for_each_tensor(optimizer, [](torch::Tensor& tensor, const torch::Tensor& parameter) {
    if (tensor.defined()) tensor = tensor.to(parameter.device());
  });
}

// After LibTorch's load() the first of such parameters has the state, the others a null pointer.
void check_ties(torch::optim::Optimizer& optimizer) {
  for (const auto& [key, state] : optimizer.state()) {
    if (state != nullptr) continue;
    raise(ErrorCode::kInvalidArgument,
          "parameters that were one when the state was saved are several here; tie them as they "
          "were then");
  }
}

// Skips LBFGS, which has flat tensors for all parameters together.
void check_state_sizes(torch::optim::Optimizer& optimizer) {
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const auto& parameters = optimizer.param_groups()[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto it = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
      if (it == optimizer.state().end()) continue;
      for (const torch::Tensor* const tensor :
           known_tensors_of(*it->second).value_or(std::vector<torch::Tensor*>())) {
        if (!tensor->defined() || tensor->sizes() == parameters[i].sizes()) continue;
        std::ostringstream text;
        text << "the state of parameter " << i << " of group " << g << " is for the sizes "
             << tensor->sizes() << ", but the parameter has " << parameters[i].sizes();
        raise(ErrorCode::kInvalidArgument, std::move(text).str());
      }
    }
  }
}

}  // namespace kolo
