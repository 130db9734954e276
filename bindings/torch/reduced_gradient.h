// ReducedGradient: one parameter's gradient on its way over the ranks and back. Used by the
// gradient reducer, by one thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/gradient_hooks.h"
#include "bindings/torch/gradient_place.h"
#include "bindings/torch/step_count.h"

#include <kolo/torch/distributed_optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// What all gradients of one optimizer share.
struct ReductionSettings {
  DistributedOptimizerOptions options;
  std::optional<std::int64_t> samples;        ///< of this rank and step, with weigh_by_samples
  std::optional<std::int64_t> total_samples;  ///< of all ranks, once known
  std::shared_ptr<StepCount> step;            ///< never null
};

/// What every gradient's all-reduce is: all but its name.
TensorAllreduceOptions allreduce_options_of(const ReductionSettings& settings);
/// What this rank submits in place of all-reduces of these names, of one `group` if it has a name:
/// they fail on all ranks, which tell `why`.
std::vector<TensorWork> refuse(const std::vector<std::string>& names, const std::string& why,
                               const std::string& group, const ReductionSettings& settings);

/// Whether both are one tensor.
bool is_same(const torch::Tensor& a, const torch::Tensor& b);
/// Whether it was written to since it had that version; false for none.
bool is_changed(const torch::Tensor& tensor, const std::optional<std::int64_t>& version);

class GradientGroup;

class ReducedGradient {
 public:
  /// `settings` outlives it.
  ReducedGradient(std::string name, torch::Tensor parameter, const ReductionSettings& settings);

  const std::string& name() const { return name_; }
  const torch::Tensor& parameter() const { return parameter_; }
  bool is_of(const void* tensor) const { return parameter_.unsafeGetTensorImpl() == tensor; }
  /// A frozen parameter does as long as passes of before lie in its gradient, here or elsewhere.
  bool takes_part() const {
    return parameter_.requires_grad() || passes_ > 0 || pending() || wanted_;
  }
  /// Submitted, or waiting for the others of its group, and not yet finished.
  bool pending() const { return work_.valid() || waiting_; }
  bool under_way() const { return work_.valid(); }
  /// Nothing is left to be reduced: it was finished, and no backward has added to it since, here or
  /// elsewhere, nor has anybody cleared it.
  bool done() const {
    if (!takes_part()) return true;
    return done_ && !wanted_ && (parameter_.grad().defined() || !reduced_.defined());
  }
  /// Other ranks have one that is under way.
  void want() { wanted_ = !pending(); }
  bool wanted() const { return wanted_; }

  /// From now on it travels with `group`, which outlives it.
  void enter(GradientGroup& group) { group_ = &group; }
  /// It is ready, and the others of its group are awaited.
  bool waiting() const { return waiting_; }
  /// What is to travel. Once for each submission.
  TensorGroupMember load();
  /// Why this rank cannot let it travel; empty if it can. What is submitted in its place tells all
  /// ranks, and finish() throws it on each.
  const std::string& refusal() const { return refusal_; }
  /// The group is under way.
  void start(TensorWork work);

  /// Installs the hooks, if the parameter requires a gradient and has none yet.
  void install(const std::weak_ptr<GradientListener>& listener, std::size_t index);

  /// The parameter was thawed after the last zero_grad(), or step(), and has no hooks yet.
  bool is_thawed() const { return parameter_.requires_grad() && !hooks_.installed(); }
  /// At the end of a backward, which may have reached it although it had none.
  void catch_up(const std::weak_ptr<GradientListener>& listener, std::size_t index);
  void before_accumulation();
  void after_accumulation();
  /// Submits what no backward has submitted: a gradient that was set by hand or waits for further
  /// passes, or zeros.
  void submit_missing();
  /// Submits instead of such a gradient why it does not come: it fails on all ranks.
  void refuse_missing(const std::string& why);
  /// If it is under way, or passes are to be added to it, beside gradients that are reduced: until
  /// it is finished, whoever uses the parameter's gradient gets an error instead of memory that
  /// others write to, or of what is this rank's alone.
  void hide();
  /// Waits; then the parameter has the reduced gradient. Throws kInvalidArgument if somebody has
  /// changed or replaced what was under way.
  void finish();
  /// A step takes the gradient as it is; what is set from now on is another one.
  void settle();
  /// A step would reduce a gradient that is there.
  bool is_new() const;
  /// Waits for what is under way and forgets it. A gradient that `stays`, to be zeroed and added
  /// to, may get other memory.
  void discard(bool stays);

 private:
  /// What `action` throws is the refusal, unless there is one.
  template <class Action>
  void attempt(Action&& action);
  void take_up_pass();
  void submit(torch::Tensor gradient, bool absent);
  torch::Tensor densify();
  void separate(torch::Tensor& gradient);
  void show();
  [[noreturn]] void raise_touched(const char* how) const;

  std::string name_;
  torch::Tensor parameter_;
  const ReductionSettings& settings_;
  GradientHooks hooks_;
  torch::Tensor made_;  ///< the gradient, if its memory is autograd's or made here
  GradientPlace place_;
  torch::Tensor reduced_;                ///< the gradient that was submitted last
  std::optional<std::int64_t> version_;  ///< what it was then, where others do not write beside it
  torch::Tensor covered_;                ///< the gradient while it is hidden
  torch::Tensor hidden_;   ///< what the parameter has in place of it: its shape, no memory, bool
  torch::Tensor earlier_;  ///< reduced gradients of earlier passes, to be added
  TensorWork work_;
  std::string refusal_;  ///< until it is submitted
  GradientGroup* group_ = nullptr;
  bool waiting_ = false;
  bool done_ = false;
  bool wanted_ = false;    ///< by others, who have one under way
  bool touched_ = false;   ///< while it was hidden
  bool expected_ = false;  ///< autograd is about to accumulate
  bool fresh_ = false;     ///< autograd is about to make the gradient
  int passes_ = 0;         ///< since the last submission
  bool absent_ = false;    ///< what was submitted is zeros, for want of a gradient
  bool compressed_ = false;
};

}  // namespace kolo
