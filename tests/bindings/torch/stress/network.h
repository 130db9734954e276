// The network of a random training. On a rank it takes that rank's rows; in one process it takes
// the rows of all ranks, which only batch norms see together. The training loop's thread.
#pragma once

#include "tests/bindings/torch/stress/plan.h"

#include <kolo/kolo.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <vector>

namespace kolo::test {

/// The rows of one rank.
struct Part {
  torch::Tensor input;
  std::uint64_t uses = 0;  ///< a bit per layer
};

class NetworkImpl : public torch::nn::Module {
 public:
  /// With `set`, batch norms count the rows of its ranks. Weights are the next numbers of torch's
  /// generator.
  NetworkImpl(const ModelPlan& plan, std::optional<ProcessSet> set);
  std::vector<torch::Tensor> forward(const std::vector<Part>& parts);
  /// The parameters that layer `index` itself owns.
  const std::vector<torch::Tensor>& parameters_of(std::size_t index) const {
    return layers_.at(index).parameters;
  }
  /// If set, called before a layer is applied in forward().
  std::function<void(std::size_t layer)> before_layer;

 private:
  struct Layer {
    std::function<torch::Tensor(const torch::Tensor&)> apply;
    std::vector<torch::Tensor> parameters;
    bool sees_all = false;  ///< sees the rows of all parts together
  };
  void add_layer(const LayerPlan& plan, std::size_t index, std::optional<ProcessSet> set);
  torch::Tensor add_parameter(Layer& layer, const std::string& name, torch::Tensor value);
  template <class M>
  M add_module(Layer& layer, const std::string& name, M module, torch::ScalarType type);

  std::vector<Layer> layers_;
  std::vector<torch::nn::Linear> linears_;  ///< by layer; null for others
};
TORCH_MODULE(Network);

}  // namespace kolo::test
