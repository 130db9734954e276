// A network with its optimizer, trained in one process or by kolo. A random training drives both.
// The training loop's thread.
#pragma once

#include "tests/bindings/torch/stress/network.h"

#include <kolo/torch.h>

#include <functional>
#include <memory>
#include <optional>

namespace kolo::test {

/// Where a model trains.
struct Place {
  bool alone = true;     ///< in one process, without kolo
  ProcessSet set = {};   ///< otherwise over these ranks
  int accumulation = 1;  ///< passes per step
};

class Model {
 public:
  virtual ~Model() = default;

  /// Forward through the wrapper, if there is one.
  virtual std::vector<torch::Tensor> forward(const std::vector<Part>& parts) {
    return network()->forward(parts);
  }
  virtual Network& network() = 0;
  virtual torch::optim::Optimizer& optimizer() = 0;
  virtual void zero_grad(bool to_none) = 0;
  virtual void add_group(const torch::optim::OptimizerParamGroup& group) = 0;
  virtual void clip(double norm) = 0;
  /// Called before each pass; `last`: the last pass of its step. The pass ends when the result is
  /// destroyed.
  virtual std::shared_ptr<void> begin_pass(bool last) {
    static_cast<void>(last);
    return nullptr;
  }
  virtual void set_sample_count(std::int64_t samples) { static_cast<void>(samples); }
  virtual void backward(const torch::Tensor& loss) { loss.backward(); }
  /// Whether the parameters have reduced gradients when backward() has returned.
  virtual bool shows_gradients() const { return true; }
  /// Whether zero_grad() and step() are called in each pass.
  virtual bool steps_in_passes() const { return false; }
  virtual void step() { optimizer().step(); }

  /// The options of the plan's optimizer, for a group of another learning rate.
  virtual std::unique_ptr<torch::optim::OptimizerOptions> group_options(double lr) const = 0;
};

/// If set, called within the communication hooks of all models.
std::function<void()>& within_comm_hooks();

constexpr double kLearningRate = 0.02;

std::unique_ptr<Model> make_model(const ModelPlan& plan, const Place& place, std::uint64_t weights);

}  // namespace kolo::test
