#include "bindings/torch/optimizer_archive.h"

#include "bindings/torch/shard_layout.h"
#include "bindings/torch/tensor_memory.h"

#include <kolo/kolo.h>

#include <optional>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace kolo {
namespace {

/// Takes the scratch buffers out of an LBFGS, and puts them back at its end.
class WithoutScratch {
 public:
  explicit WithoutScratch(torch::optim::Optimizer& optimizer) {
    if (dynamic_cast<torch::optim::LBFGS*>(&optimizer) == nullptr) return;
    for (auto& [key, state] : optimizer.state()) {
      auto& of_lbfgs = static_cast<torch::optim::LBFGSParamState&>(*state);
      taken_.emplace_back(&of_lbfgs, std::exchange(of_lbfgs.al(), std::nullopt));
    }
  }
  ~WithoutScratch() {
    for (auto& [state, scratch] : taken_) state->al() = std::move(scratch);
  }
  WithoutScratch(const WithoutScratch&) = delete;
  WithoutScratch& operator=(const WithoutScratch&) = delete;

 private:
  using Scratch = std::optional<std::vector<torch::Tensor>>;
  std::vector<std::pair<torch::optim::LBFGSParamState*, Scratch>> taken_;
};

/// Calls `move` with each tensor of the optimizer's state and the parameter that it is for; those
/// of an optimizer that is not LibTorch's own stay where they are.
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

/// Has the state on the CPU, and at its end where it was. An archive's reader need not have the
/// devices that it was written on, or may number them differently.
class OnCpu {
 public:
  explicit OnCpu(torch::optim::Optimizer& optimizer) {
    for_each_tensor(optimizer, [&](torch::Tensor& tensor, const torch::Tensor&) {
      if (tensor.defined() && !tensor.is_cpu()) {
        moved_.emplace_back(&tensor, std::exchange(tensor, tensor.cpu()));
      }
    });
  }
  ~OnCpu() {
    for (auto& [place, tensor] : moved_) *place = std::move(tensor);
  }
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;

 private:
  std::vector<std::pair<torch::Tensor*, torch::Tensor>> moved_;
};

/// Has each parameter listed once, with a stand-in for every later listing, and at its end as they
/// were. LibTorch's load() moves a state to the first listing and a null pointer to the next.
class ListedOnce {
 public:
  explicit ListedOnce(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
    std::set<const void*> seen;
    for (auto& group : optimizer.param_groups()) {
      for (torch::Tensor& parameter : group.params()) {
        if (seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
        later_.emplace_back(&parameter, std::exchange(parameter, torch::empty({0})));
      }
    }
  }
  ~ListedOnce() {
    for (auto& [place, parameter] : later_) {
      optimizer_.state().erase(place->unsafeGetTensorImpl());
      *place = std::move(parameter);
    }
  }
  ListedOnce(const ListedOnce&) = delete;
  ListedOnce& operator=(const ListedOnce&) = delete;

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<std::pair<torch::Tensor*, torch::Tensor>> later_;
};

}  // namespace

void save_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::OutputArchive& archive) {
  const WithoutScratch without_scratch(optimizer);
  const OnCpu on_cpu(optimizer);
  optimizer.save(archive);
}

OptimizerBefore::OptimizerBefore(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
  std::swap(state_, optimizer.state());
  for (const auto& group : optimizer.param_groups()) options_.push_back(group.options().clone());
}

void OptimizerBefore::restore() {
  std::swap(state_, optimizer_.state());
  for (std::size_t g = 0; g < options_.size(); ++g) {
    optimizer_.param_groups()[g].set_options(std::move(options_[g]));
  }
}

void load_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::InputArchive& archive) {
  // LibTorch's load() only adds to the state.
  optimizer.state().clear();
  {
    const ListedOnce listed_once(optimizer);
    optimizer.load(archive);
  }
  for (const auto& [key, state] : optimizer.state()) {
    if (state != nullptr) continue;
    raise(ErrorCode::kInvalidArgument,
          "parameters that were one when the state was saved are several here; tie them as they "
          "were then");
  }
  for_each_tensor(optimizer, [](torch::Tensor& tensor, const torch::Tensor& parameter) {
    if (tensor.defined()) tensor = tensor.to(parameter.device());
  });
}

// LBFGS has flat tensors for all parameters together.
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
