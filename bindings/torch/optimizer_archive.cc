#include "bindings/torch/optimizer_archive.h"

#include <optional>
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

}  // namespace

void save_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::OutputArchive& archive) {
  const WithoutScratch without_scratch(optimizer);
  optimizer.save(archive);
}

void load_optimizer(torch::optim::Optimizer& optimizer, torch::serialize::InputArchive& archive) {
  // LibTorch's load() only adds to the state.
  optimizer.state().clear();
  optimizer.load(archive);
}

}  // namespace kolo
