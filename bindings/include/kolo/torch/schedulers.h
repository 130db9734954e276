// Learning-rate schedulers whose state a checkpoint can hold; LibTorch's own cannot be saved. Each
// IS the scheduler of LibTorch that it is named after.
//
//   kolo::StepLR scheduler(optimizer, /*step_size=*/10, /*gamma=*/0.5);
//   scheduler.step();
//   kolo::save_checkpoint(
//       path, {.module = model.get(), .optimizer = &optimizer, .scheduler = &scheduler}, epoch);
//
// - The learning rates themselves are options of the optimizer, so they are saved and loaded with
//   the optimizer.
// - Make a scheduler from the optimizer that steps. A scheduler has no effect if it was made before
//   its optimizer was moved into a DistributedOptimizer or ShardedOptimizer. step() then throws
//   kInvalidArgument; LibTorch's own schedulers say nothing.
// - Used by the training loop's thread, in the same way on all ranks.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/scheduler_state.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize/archive.h>

#include <utility>
#include <vector>

namespace kolo {

/// Throws kInvalidArgument: a scheduler stepped an optimizer without groups.
[[noreturn]] KOLO_API void raise_no_groups();

/// For schedulers that are a function of the number of steps. S derives from LibTorch's
/// LRScheduler.
template <class S>
class ResumableScheduler : public S, public SchedulerState {
 public:
  using S::S;
  void step() {
    if (this->get_current_lrs().empty()) raise_no_groups();
    S::step();
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    archive.write("steps", torch::tensor(static_cast<std::int64_t>(this->step_count_)), true);
  }
  void load(torch::serialize::InputArchive& archive) override {
    torch::Tensor steps;
    archive.read("steps", steps, true);
    this->step_count_ = static_cast<unsigned>(steps.item<std::int64_t>());
  }
};

using StepLR = ResumableScheduler<torch::optim::StepLR>;

/// LibTorch does not expose this scheduler's state. The state is a function of the metrics that the
/// scheduler got, so kolo saves the metrics. Pass the same metric on every rank (metric_average()).
class KOLO_API ReduceLROnPlateau : public torch::optim::ReduceLROnPlateauScheduler,
                                   public SchedulerState {
 public:
  /// Takes the arguments of LibTorch's constructor.
  template <class... Args>
  explicit ReduceLROnPlateau(torch::optim::Optimizer& of, Args&&... args)
      : torch::optim::ReduceLROnPlateauScheduler(of, std::forward<Args>(args)...),
        optimizer_(&of) {}

  void step(float metric);
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Applies the saved metrics again. This leaves the learning rates unchanged, but prints the
  /// messages of `verbose` again. Throws kInvalidArgument if the scheduler has taken steps already.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  torch::optim::Optimizer* optimizer_;
  std::vector<float> metrics_;
};

}  // namespace kolo
