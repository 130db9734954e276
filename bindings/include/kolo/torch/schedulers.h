// Learning-rate schedulers whose state a checkpoint can hold; LibTorch's own cannot be saved. Each
// IS the scheduler of LibTorch that it is named after. The learning rates themselves are in the
// optimizer's options, so they are saved and loaded with the optimizer.
// Make a scheduler from the optimizer that steps. One that was made before its optimizer was moved
// into a DistributedOptimizer or ShardedOptimizer would change nothing: step() then throws
// kInvalidArgument. (LibTorch's own do change nothing.)
// Used by the training loop's thread, on all ranks alike.
#pragma once

#include <kolo/export.h>
#include <torch/torch.h>

#include <utility>
#include <vector>

namespace kolo {

/// What a checkpoint holds of a scheduler; derive from it for a scheduler of one's own.
class KOLO_API SchedulerState {
 public:
  virtual ~SchedulerState() = default;
  virtual void save(torch::serialize::OutputArchive& archive) const = 0;
  virtual void load(torch::serialize::InputArchive& archive) = 0;
};

/// Throws kInvalidArgument: a scheduler's step on an optimizer without groups.
[[noreturn]] KOLO_API void raise_no_groups();

/// For schedulers that are a function of the count of steps: S derives from LibTorch's LRScheduler.
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

/// LibTorch keeps this scheduler's state to itself, but it is a function of the metrics that it was
/// given: these are what is saved. Give it the same metric on every rank (metric_average()).
class KOLO_API ReduceLROnPlateau : public torch::optim::ReduceLROnPlateauScheduler,
                                   public SchedulerState {
 public:
  /// The arguments of LibTorch's.
  template <class... Args>
  explicit ReduceLROnPlateau(torch::optim::Optimizer& of, Args&&... args)
      : torch::optim::ReduceLROnPlateauScheduler(of, std::forward<Args>(args)...),
        optimizer_(&of) {}

  void step(float metric);
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Takes the saved metrics again, which leaves the learning rates as they are (and says all again
  /// what `verbose` says). Throws kInvalidArgument if it has taken steps already.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  torch::optim::Optimizer* optimizer_;
  std::vector<float> metrics_;
};

}  // namespace kolo
