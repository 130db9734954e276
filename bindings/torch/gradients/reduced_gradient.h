// ReducedGradient: one parameter's gradient on its way over the ranks and back. Used by the
// gradient reducer; one thread at a time. Private to bindings/torch.
#pragma once

#include "bindings/torch/gradients/gradient_hooks.h"
#include "bindings/torch/gradients/gradient_memory.h"
#include "bindings/torch/gradients/sample_share.h"
#include "bindings/torch/gradients/step_count.h"

#include <kolo/torch/distributed_optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// What all gradients of one optimizer share.
struct ReductionSettings {
  const DistributedOptimizerOptions options;
  StepCount& step;
  SampleShare samples = {};  ///< with weigh_by_samples
};

/// The sum, in the memory of either; sparse only if both are.
torch::Tensor add_up(torch::Tensor a, torch::Tensor b);
/// Whether both are the same tensor.
bool is_same(const torch::Tensor& a, const torch::Tensor& b);
/// Whether `tensor` was written to since it had `version`; false without a version.
bool is_changed(const torch::Tensor& tensor, const std::optional<std::int64_t>& version);

class GradientGroup;

class ReducedGradient {
 public:
  /// Where the gradient is. Any state becomes kIdle by discard(), and where something has failed.
  ///
  ///   kIdle          nothing is to be sent, or it waits for passes
  ///     -> kWaiting by the last pass of a step, or submit_missing()
  ///   kWaiting       ready, until the rest of its group is
  ///     -> kUnderWay by start(); -> kIdle by another pass, which is added before anything is sent
  ///   kUnderWay      submitted
  ///     -> kReduced by finish(), also at the beginning of another pass
  ///   kReduced       the parameter has the reduced gradient
  ///     -> kIdle by settle(), or by another pass
  enum class State : std::uint8_t { kIdle, kWaiting, kUnderWay, kReduced };

  /// `settings` must outlive the gradient.
  ReducedGradient(std::string name, torch::Tensor parameter, const ReductionSettings& settings);

  const std::string& name() const { return name_; }
  const torch::Tensor& parameter() const { return parameter_; }
  /// A frozen parameter takes part while its gradient holds earlier passes, here or elsewhere.
  bool takes_part() const {
    return parameter_.requires_grad() || passes_ > 0 || pending() || wanted_;
  }
  State state() const { return state_; }
  bool pending() const { return state_ == State::kWaiting || state_ == State::kUnderWay; }
  /// Nothing is left to be reduced: the gradient was finished, and since then no backward on any
  /// rank has added to it and nobody has cleared it.
  bool done() const {
    if (!takes_part()) return true;
    return state_ == State::kReduced && !wanted_ &&
           (parameter_.grad().defined() || !sent_.tensor.defined());
  }
  /// Other ranks have their gradient under way.
  void want() { wanted_ = !pending(); }
  /// How the gradient travelled last, here or elsewhere. Where a rank has none, it takes part in
  /// this way. Unknown before the first time.
  std::optional<bool> is_sparse() const { return is_sparse_; }
  /// Some rank's gradient travels so.
  void note_sparse(bool is_sparse) { is_sparse_ = is_sparse; }

  /// From now on the gradient travels with `group`, which must outlive it. Called before any pass.
  void enter(GradientGroup& group);
  GradientGroup& group() const { return *group_; }
  /// The tensors that travel. Called once for each submission.
  TensorGroupMember load();
  /// Why this rank refuses to let the gradient travel; empty if it does not refuse. The refusal is
  /// submitted instead and reaches all ranks; finish() throws it on each.
  const std::string& refusal() const { return refusal_; }
  /// The group's operation has started.
  void start(TensorWork work);

  /// Installs the hooks if the parameter requires a gradient and has no hooks yet.
  void install(const std::weak_ptr<GradientListener>& listener, std::size_t index);

  /// For a parameter that was unfrozen after the last zero_grad() or step() and has no hooks yet.
  /// Called at the end of a backward, which may have reached the parameter before it had hooks.
  void catch_up(const std::weak_ptr<GradientListener>& listener, std::size_t index);
  void before_accumulation();
  void after_accumulation();
  /// Submits what no backward has submitted: a gradient that was set by hand or waits for further
  /// passes, or zeros. `why`, if not empty, makes it a refusal, which fails on all ranks.
  void submit_missing(const std::string& why = {});
  /// Hides a gradient that is under way, or that waits for passes beside gradients that are
  /// reduced. Until it is finished, code that uses the parameter's gradient gets an error.
  /// Otherwise it would use memory that others write to, or values of this rank only.
  void hide();
  /// Waits; afterwards the parameter has the reduced gradient. Throws kInvalidArgument if the
  /// gradient was changed or replaced while it was under way.
  void finish() { finish(show()); }
  /// A step takes the gradient as it is; a gradient that is set later is a new one.
  void settle();
  /// There is a gradient that a step would reduce.
  bool is_new() const;
  /// Waits for what is under way and forgets it. If the gradient `stays`, to be zeroed and added
  /// to, it may move to other memory.
  void discard(bool stays);

 private:
  /// What autograd is about to do between the two hooks.
  enum class Accumulation : std::uint8_t { kNone, kAdds, kMakes };
  /// The last submission. Its tensor stays, to tell the reduced gradient from a new one.
  struct Sent {
    torch::Tensor tensor;                 ///< the gradient, or zeros
    std::optional<std::int64_t> version;  ///< version of `tensor`, unless others share its memory
    bool absent = false;                  ///< zeros, because there was no gradient
    TensorWork work;                      ///< in kUnderWay
  };
  /// A gradient that hide() has replaced.
  struct Hidden {
    torch::Tensor gradient;
    torch::Tensor stand_in;  ///< same shape, no memory, bool
  };

  /// An exception of `action` becomes the refusal, unless there is one already.
  template <class Action>
  void attempt(Action&& action);
  void take_up_pass();
  /// Keeps a reduced gradient apart from the new pass. `was_done`: it was finished.
  void set_aside(bool was_done);
  /// What travels in place of the gradient. kInvalidArgument if the compressor fails.
  torch::Tensor compress();
  void submit(torch::Tensor gradient, bool absent);
  /// The gradient; a sparse one is made dense if this is asked for. kUnsupported for a sparse one
  /// that cannot travel.
  torch::Tensor admit();
  void refuse_sparse(const std::string& why) const;
  void separate(torch::Tensor& gradient);
  /// Undoes hide(). Returns whether the stand-in was changed, or removed while it was under way.
  bool show();
  /// `touched`: show() has said so.
  void finish(bool touched);
  /// Whether the gradient is still the one that was sent. Throws if it was changed or replaced;
  /// false if it was cleared by hand.
  bool is_untouched(const torch::Tensor& gradient, bool touched, bool changed) const;
  /// Waits for the result: reduced, but for what decode() undoes. Undefined where no rank had a
  /// gradient.
  torch::Tensor await(TensorWork& work) const;
  /// Undoes the compression and the weights.
  void decode(const torch::Tensor& result, torch::Tensor& gradient) const;
  /// The compressor's. If it throws, communication is over.
  void decompress(const torch::Tensor& wire, const torch::Tensor& gradient) const;
  /// Waits for what is under way, whatever becomes of it.
  void drop();
  [[noreturn]] void raise_touched(const char* how) const;

  std::string name_;
  torch::Tensor parameter_;
  const ReductionSettings& settings_;
  GradientHooks hooks_;
  GradientGroup* group_ = nullptr;
  torch::Tensor made_;  ///< the gradient, if autograd or this class made its memory
  GradientMemory shared_memory_;
  State state_ = State::kIdle;
  Accumulation accumulation_ = Accumulation::kNone;
  int passes_ = 0;       ///< passes since the last submission
  bool wanted_ = false;  ///< other ranks have one under way; in kIdle or kReduced
  std::optional<bool> is_sparse_;
  torch::Tensor earlier_;  ///< reduced gradients of earlier passes, to be added
  Sent sent_;
  std::optional<Hidden> hidden_;
  std::string refusal_;  ///< until it is submitted
};

}  // namespace kolo
