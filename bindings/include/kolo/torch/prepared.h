// What Accelerator::prepare() returns for a model, an optimizer and a scheduler: handles that
// follow the Accelerator's accumulation and precision. Copies share their state. Used by the
// training loop's thread.
//
//   kolo::Accelerator accelerator(argc, argv);
//   auto [model, optimizer, scheduler] = accelerator.prepare(network, adam, step_lr);
//   accelerator.backward(torch::nll_loss(model.forward(input), target));
//   optimizer.step(), scheduler.step(), optimizer.zero_grad();
#pragma once

#include <kolo/export.h>
#include <kolo/torch/autocast.h>
#include <kolo/torch/distributed_data_parallel.h>
#include <kolo/torch/grad_scaler.h>
#include <kolo/torch/map_tensors.h>
#include <kolo/torch/world_member.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

/// The current pass over a prepared loader.
struct LoaderPass {
  bool is_open = false;   ///< the loop has a batch
  bool has_last = false;  ///< the loop has its last batch
  /// Number of elements in the loop's batch. Element i of rank r is element i * size + r of all
  /// ranks' elements. 0 for batches that are dealt out whole.
  std::int64_t rows = 0;
  std::int64_t repeated_rows = 0;  ///< rows at the batch's end that only pad; −1: all rows
  // For several loaders that give batches to one loop:
  std::uint64_t round = 0;         ///< AcceleratorState::round when the batch was taken
  std::uint64_t round_before = 0;  ///< round of the loader's batch in an earlier round
  std::int64_t length = 0;         ///< batches of the loader's longest pass, as far as known
};

/// State that an Accelerator shares with everything that it has prepared.
struct KOLO_API AcceleratorState {
  torch::Device device = torch::kCPU;
  std::optional<torch::ScalarType> half;  ///< type of forward; absent: no autocast
  std::optional<GradScaler> scaler;       ///< with float16
  int accumulation_steps = 1;
  int passes = 0;                      ///< passes of accumulate() since the last step
  std::weak_ptr<void> open_pass = {};  ///< an AccumulatedPass that has not ended
  bool sync_gradients = true;          ///< the current pass is the last one before a step
  bool holds_earlier = false;          ///< its gradients add to those of earlier passes
  std::vector<std::weak_ptr<LoaderPass>> loader_passes = {};  ///< inner loops come last
  /// Number of the current round: the batches taken for one pass of accumulate(), or before any
  /// pass.
  std::uint64_t round = 1;
  bool round_is_over = false;        ///< the pass of this round has begun
  bool scheduler_with_steps = true;  ///< as AcceleratorOptions::step_scheduler_with_optimizer
  std::uint64_t backwards = 0;       ///< number of backward() calls
  bool any_since_backward = false;   ///< some optimizer's step() was called, even if it did nothing

  struct Steps {
    std::weak_ptr<torch::optim::Optimizer> optimizer = {};
    std::function<void()> clear = {};    ///< its zero_grad()
    int number = 0;                      ///< index among the prepared optimizers
    bool has_stepped = false;            ///< stepped since zero_grad() cleared the gradients
    bool was_skipped = false;            ///< the last step was skipped because of an overflow
    bool holds_earlier = false;          ///< has gradients of earlier passes that were not stepped
    std::uint64_t gradients_before = 0;  ///< version_of_gradients() at the start of this pass
    /// version_of_gradients() at the last step(), also one that did nothing; until zero_grad().
    std::optional<std::uint64_t> gradients_at_step = {};
    /// zero_grad() had to drop them, because another optimizer's backward had added to them.
    bool lost_earlier = false;
    std::uint64_t count = 0;     ///< number of steps, including skipped ones
    std::uint64_t backward = 0;  ///< value of `backwards` at the last step
    bool was_asked = false;      ///< step() was called, whatever it did
    bool is_last = false;        ///< the latest step() call took a step

    std::uint64_t gradients() const;
  };
  std::map<const void*, Steps> steps = {};  ///< by address of the optimizer
  int optimizers = 0;                       ///< number of prepared optimizers

  /// The pass of the innermost loop.
  LoaderPass loader_pass() const;
  /// Whether the pass that begins has the last batch of its loop. If several loaders give a batch
  /// to each pass, the one with the longest pass decides, because the others are begun again.
  bool loop_has_last() const;
  /// The round of a batch that is taken now.
  std::uint64_t round_of_batch();
  /// Begins a pass of accumulate(), after the gradients of the last one.
  void begin_pass();
  /// Begins a backward(). Clears gradients that were stepped and not cleared, so that they do not
  /// add up with the new ones.
  void begin_backward();
  /// Adds the options and step counts of the prepared optimizers to the comparison that
  /// DistributedDataParallel makes when it sends the gradients of this loss.
  void tell_optimizers(const torch::Tensor& loss) const;
  /// Scales the gradients of earlier passes when another optimizer's step changes the scale.
  void rescale_held(double factor);
  /// Whether step() is to step; otherwise gradients add up. Throws kInvalidArgument if zero_grad()
  /// had to drop accumulated gradients.
  bool begin_step(Steps& its);
  void end_step(Steps& its, bool was_skipped);
  /// Whether zero_grad() is to clear; otherwise gradients add up. Throws kInvalidArgument if
  /// gradients that it should drop were added to accumulated ones.
  bool begin_clear(Steps& its);
  void end_clear(Steps& its);
  /// Drops what passes have accumulated: in another world the next pass is a first one.
  void restart();
  /// The prepared optimizer whose learning rates the scheduler changes, or null.
  Steps* steps_of(const torch::optim::LRScheduler& scheduler);
  /// Whether a schedule advances: its optimizer has stepped, and did so with the last backward or
  /// since the schedule was last asked. `seen` is the optimizer's step count at that time.
  bool schedule_goes_on(const torch::optim::LRScheduler& scheduler, std::uint64_t& seen);
};

/// A number that changes whenever a gradient of the optimizer changes.
KOLO_API std::uint64_t version_of_gradients(torch::optim::Optimizer& optimizer);

/// An owner for an rvalue. An lvalue is not owned and must outlive the result.
template <class T>
std::shared_ptr<std::remove_reference_t<T>> held(T&& part) {
  if constexpr (std::is_lvalue_reference_v<T>) {
    return {&part, [](auto*) {}};
  } else {
    return std::make_shared<T>(std::move(part));
  }
}

/// A module in a DistributedDataParallel, with mixed precision. Accelerator::prepare() makes it;
/// see the example at the top. elastic::State takes it as a member.
template <class M>
class PreparedModel : public WorldMember {
 public:
  PreparedModel(M module, const DdpOptions& options, std::shared_ptr<AcceleratorState> state)
      : ddp_(std::make_shared<DistributedDataParallel<M>>(std::move(module), options)),
        state_(std::move(state)) {}
  // A handle without moves: what was moved from works on.
  PreparedModel(const PreparedModel&) = default;
  PreparedModel& operator=(const PreparedModel&) = default;

  /// Returns the result of the module's forward. With mixed precision, forward runs in the half
  /// type, and tensors of a half type are returned in float32, also inside tuples, vectors, …
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    if (!state_->half) return ddp_->forward(std::forward<Arguments>(arguments)...);
    const Autocast autocast(state_->device, {.dtype = state_->half});
    return map_tensors(ddp_->forward(std::forward<Arguments>(arguments)...),
                       [](const torch::Tensor& tensor) {
                         const auto type = tensor.scalar_type();
                         const bool is_half = type == torch::kHalf || type == torch::kBFloat16;
                         return is_half ? tensor.to(torch::kFloat32) : tensor;
                       });
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  PreparedModel* operator->() { return this; }

  /// The module that was passed.
  M& module() { return ddp_->module(); }
  auto parameters() const { return ddp_->parameters(); }
  auto named_parameters() const { return ddp_->named_parameters(); }
  void train(bool on = true) { ddp_->train(on); }
  void eval() { ddp_->eval(); }
  bool is_training() const { return ddp_->is_training(); }
  NoSync no_sync() { return ddp_->no_sync(); }
  /// As DistributedDataParallel::set_sample_count.
  void set_sample_count(std::int64_t samples) { ddp_->set_sample_count(samples); }
  void leave_world() override { ddp_->leave_world(); }
  void enter_world() override {
    state_->restart();
    ddp_->enter_world();
  }

 private:
  std::shared_ptr<DistributedDataParallel<M>> ddp_;
  std::shared_ptr<AcceleratorState> state_;
};

/// An optimizer that steps and clears only when gradients are complete. Accelerator::prepare()
/// makes it; see the example at the top.
template <class O>
class PreparedOptimizer {
 public:
  PreparedOptimizer(std::shared_ptr<O> optimizer, std::shared_ptr<AcceleratorState> state)
      : optimizer_(std::move(optimizer)), state_(std::move(state)) {
    const std::weak_ptr<O> weak = optimizer_;
    steps() = {.optimizer = weak,
               .clear =
                   [weak] {
                     if (const auto alive = weak.lock()) alive->zero_grad();
                   },
               .number = state_->optimizers++};
  }
  // A handle without moves: what was moved from works on.
  PreparedOptimizer(const PreparedOptimizer&) = default;
  PreparedOptimizer& operator=(const PreparedOptimizer&) = default;

  /// Does nothing while gradients add up. With float16 it skips the step if gradients have
  /// overflowed.
  void step() {
    static_assert(
        requires(O& optimizer) { optimizer.step(); },
        "this optimizer's step takes a closure (LBFGS): leave it unprepared, and call its "
        "own step(closure)");
    if (!state_->begin_step(steps())) return;
    bool was_skipped = false;
    if (state_->scaler) {
      was_skipped = !state_->scaler->step(*optimizer_);
      state_->scaler->update_later();  // other optimizers may step by the same backward
    } else {
      optimizer_->step();
    }
    state_->end_step(steps(), was_skipped);
  }
  /// Does nothing while gradients add up, so it may be called before backward or after step(). In
  /// the last pass before a step, it clears once the pass has changed this optimizer's gradients.
  /// Between step() and zero_grad(), a backward of another optimizer must not reach these gradients
  /// (requires_grad_(false)). Its part could not be dropped separately, so kInvalidArgument is
  /// thrown.
  void zero_grad(bool set_to_none = true) {
    if (!state_->begin_clear(steps())) return;
    optimizer_->zero_grad(set_to_none);
    state_->end_clear(steps());
  }
  /// Whether this optimizer's last step() was skipped.
  bool step_was_skipped() const { return steps().was_skipped; }
  auto& param_groups() { return optimizer_->param_groups(); }
  /// The optimizer that was passed.
  O& optimizer() { return *optimizer_; }

 private:
  AcceleratorState::Steps& steps() const { return state_->steps[optimizer_.get()]; }

  std::shared_ptr<O> optimizer_;
  std::shared_ptr<AcceleratorState> state_;
};

/// A scheduler that follows its optimizer's steps. step() decides how often to step the scheduler:
/// - Not at all unless its optimizer has really stepped, so neither while gradients add up nor
///   after a skipped step.
/// - Otherwise once for each process. A schedule is written for one process, which would make as
///   many more steps in an epoch (after Accelerate).
/// - If its optimizer is not prepared, or has not been asked to step yet, the pass decides: not
///   while gradients add up.
/// - Always once with AcceleratorOptions::step_scheduler_with_optimizer = false, and for a
///   scheduler that takes a metric.
template <class S>
class PreparedScheduler {
 public:
  PreparedScheduler(std::shared_ptr<S> scheduler, std::shared_ptr<AcceleratorState> state)
      : scheduler_(std::move(scheduler)), state_(std::move(state)) {}
  // A handle without moves: what was moved from works on.
  PreparedScheduler(const PreparedScheduler&) = default;
  PreparedScheduler& operator=(const PreparedScheduler&) = default;

  void step()
    requires std::is_base_of_v<torch::optim::LRScheduler, S>
  {
    int times = 1;
    if (state_->scheduler_with_steps)
      times = state_->schedule_goes_on(*scheduler_, *seen_) ? size() : 0;
    for (int i = 0; i < times; ++i) scheduler_->step();
  }
  /// Pass the same metric on every rank.
  void step(float metric)
    requires(!std::is_base_of_v<torch::optim::LRScheduler, S>)
  {
    scheduler_->step(metric);
  }
  S& scheduler() { return *scheduler_; }

 private:
  std::shared_ptr<S> scheduler_;
  std::shared_ptr<AcceleratorState> state_;
  std::shared_ptr<std::uint64_t> seen_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace kolo
