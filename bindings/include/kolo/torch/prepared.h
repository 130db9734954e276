// What Accelerator::prepare() makes of a model, an optimizer and a scheduler: handles that share
// their state when copied, and follow the Accelerator's accumulation and precision. The training
// loop's thread.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/autocast.h>
#include <kolo/torch/distributed_data_parallel.h>
#include <kolo/torch/grad_scaler.h>
#include <kolo/torch/map_tensors.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace kolo {

/// A pass over a prepared loader that has not ended.
struct LoaderPass {
  bool is_open = false;   ///< the loop has a batch
  bool has_last = false;  ///< the loop has its last batch
  /// Elements of the loop's batch, of which the i-th of rank r is the (i * size + r)-th of all; 0
  /// where batches are dealt out as they are.
  std::int64_t rows = 0;
  std::int64_t repeated_rows = 0;  ///< at the batch's end, which only fill up; −1: all
  // For where several loaders give their batches to one loop:
  std::uint64_t round = 0;         ///< of the batch: AcceleratorState::round as it was taken
  std::uint64_t round_before = 0;  ///< of the loader's batch in an earlier round
  std::int64_t length = 0;         ///< batches of the loader's longest pass, as far as known
};

/// What an Accelerator and all that it has prepared share.
struct KOLO_API AcceleratorState {
  torch::Device device = torch::kCPU;
  std::optional<torch::ScalarType> half;  ///< of forward; absent: no autocast
  std::optional<GradScaler> scaler;       ///< with float16
  int accumulation_steps = 1;
  int passes = 0;                      ///< of accumulate() since the last step
  std::weak_ptr<void> open_pass = {};  ///< an AccumulatedPass that has not ended
  bool sync_gradients = true;          ///< the present pass is the last before a step
  bool holds_earlier = false;          ///< its gradients add to those of passes before it
  std::vector<std::weak_ptr<LoaderPass>> loader_passes = {};  ///< those within others last
  std::uint64_t round = 1;  ///< batches that are taken for one pass of accumulate(), or before any
  bool round_is_over = false;        ///< that pass has begun
  bool scheduler_with_steps = true;  ///< as AcceleratorOptions::step_scheduler_with_optimizer
  std::uint64_t backwards = 0;       ///< calls of backward()
  bool any_since_backward = false;   ///< a step() of some optimizer, also one that did nothing

  struct Steps {
    std::weak_ptr<torch::optim::Optimizer> optimizer = {};
    std::function<void()> clear = {};  ///< its zero_grad()
    int number = 0;                    ///< of those that were prepared
    bool has_stepped = false;          ///< since zero_grad() cleared the gradients
    bool was_skipped = false;          ///< the last step, because of an overflow
    bool holds_earlier = false;        ///< gradients of passes before the present one, not stepped
    std::uint64_t gradients_before = 0;  ///< version_of_gradients(), as the present pass began
    /// The same at the last step(), also one that did nothing, until zero_grad().
    std::optional<std::uint64_t> gradients_at_step = {};
    bool lost_earlier = false;   ///< zero_grad() has cleared them for another's backward
    std::uint64_t count = 0;     ///< steps, also skipped ones
    std::uint64_t backward = 0;  ///< `backwards` at the last one
    bool was_asked = false;      ///< step() was called, whatever it did
    bool is_last = false;        ///< none since has done nothing

    std::uint64_t gradients() const;
  };
  std::map<const void*, Steps> steps = {};  ///< by optimizer
  int optimizers = 0;                       ///< that were prepared

  /// The innermost loop's.
  LoaderPass loader_pass() const;
  /// Whether the pass that begins has the last batch of its loop: of the loader that gives a batch
  /// to each pass, and of several the one with the longest pass, for the others are begun again.
  bool loop_has_last() const;
  /// The round of a batch that is taken now.
  std::uint64_t round_of_batch();
  /// A pass of accumulate() begins, after the last one's gradients.
  void begin_pass();
  /// A backward() begins. What has been stepped and not cleared does not add up with it.
  void begin_backward();
  /// Ranks compare the options and counts of steps of the prepared optimizers when a
  /// DistributedDataParallel sends the gradients of this loss.
  void tell_optimizers(const torch::Tensor& loss) const;
  /// Gradients of passes before take part in a change of the scale, as another optimizer's step
  /// makes it.
  void rescale_held(double factor);
  /// Whether step() is to step; otherwise gradients add up. Throws kInvalidArgument where
  /// zero_grad() had to drop what has added up.
  bool begin_step(Steps& its);
  void end_step(Steps& its, bool was_skipped);
  /// Whether zero_grad() is to clear; otherwise gradients add up. Throws kInvalidArgument where
  /// what it should drop has been added to them.
  bool begin_clear(Steps& its);
  void end_clear(Steps& its);
  /// The prepared optimizer whose learning rates these are, or null.
  Steps* steps_of(const torch::optim::LRScheduler& scheduler);
  /// Whether a schedule goes on: its optimizer has stepped, and by the last backward, or since the
  /// schedule was asked last; `seen` is the optimizer's count then.
  bool schedule_goes_on(const torch::optim::LRScheduler& scheduler, std::uint64_t& seen);
};

/// A number that changes whenever a gradient of the optimizer does.
KOLO_API std::uint64_t version_of_gradients(torch::optim::Optimizer& optimizer);

/// The owner of what is passed as an rvalue; what is passed as an lvalue must outlive it.
template <class T>
std::shared_ptr<std::remove_reference_t<T>> held(T&& part) {
  if constexpr (std::is_lvalue_reference_v<T>) {
    return {&part, [](auto*) {}};
  } else {
    return std::make_shared<T>(std::move(part));
  }
}

template <class M>
class PreparedModel {
 public:
  PreparedModel(M module, const DdpOptions& options, std::shared_ptr<AcceleratorState> state)
      : ddp_(std::make_shared<DistributedDataParallel<M>>(std::move(module), options)),
        state_(std::move(state)) {}

  /// The module's, in mixed precision if there is; what is of a half type comes back in float32
  /// then, also inside of tuples, vectors, …
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
  /// As DistributedDataParallel's.
  void set_sample_count(std::int64_t samples) { ddp_->set_sample_count(samples); }

 private:
  std::shared_ptr<DistributedDataParallel<M>> ddp_;
  std::shared_ptr<AcceleratorState> state_;
};

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

  /// Nothing while gradients add up; with float16, nothing when they have overflowed.
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
  /// Nothing while gradients add up, so it may stand in front of a backward as well as behind
  /// step(): in the last pass of a step it clears once that pass has changed this optimizer's. A
  /// backward of another optimizer's between step() and zero_grad() must not reach these gradients
  /// then (requires_grad_(false)): what it adds could not be dropped alone, and kInvalidArgument
  /// says so.
  void zero_grad(bool set_to_none = true) {
    if (!state_->begin_clear(steps())) return;
    optimizer_->zero_grad(set_to_none);
    state_->end_clear(steps());
  }
  /// This optimizer's last step().
  bool step_was_skipped() const { return steps().was_skipped; }
  auto& param_groups() { return optimizer_->param_groups(); }
  /// The optimizer that was passed.
  O& optimizer() { return *optimizer_; }

 private:
  AcceleratorState::Steps& steps() const { return state_->steps[optimizer_.get()]; }

  std::shared_ptr<O> optimizer_;
  std::shared_ptr<AcceleratorState> state_;
};

/// How often step() steps the scheduler that was passed: not at all unless its optimizer has really
/// stepped (not while gradients add up, nor after a step that was skipped), else once for each
/// process, for a schedule is written for one process, which would make as many steps in an epoch
/// (after Accelerate). One whose optimizer was not prepared, or has not been asked to step yet,
/// goes by the pass: not while gradients add up. Once, always, with
/// AcceleratorOptions::step_scheduler_with_optimizer = false, and for one that is given a metric.
template <class S>
class PreparedScheduler {
 public:
  PreparedScheduler(std::shared_ptr<S> scheduler, std::shared_ptr<AcceleratorState> state)
      : scheduler_(std::move(scheduler)), state_(std::move(state)) {}

  void step()
    requires std::is_base_of_v<torch::optim::LRScheduler, S>
  {
    int times = 1;
    if (state_->scheduler_with_steps)
      times = state_->schedule_goes_on(*scheduler_, *seen_) ? size() : 0;
    for (int i = 0; i < times; ++i) scheduler_->step();
  }
  /// The same metric on every rank.
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
