// The end of a backward of DistributedOptimizer. Decides which gradients are finished at once, so
// that the training loop finds averages. Called by hooks on autograd's threads and by callbacks of
// its engine before backward() returns.
#include "bindings/torch/gradients/backward_callbacks.h"
#include "bindings/torch/gradients/backward_values.h"
#include "bindings/torch/gradients/gradient_reducer_state.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

namespace kolo {
namespace {

// The cells of a round after its parameters, summed over the ranks.
enum Told : std::size_t { kNothing, kToldCount };
constexpr const char* kInterrupted =
    "its backward() has ended by an exception and left this gradient out";

}  // namespace

void GradientReducer::State::before_accumulation(std::size_t index) {
  const std::lock_guard lock(mutex);
  settings.step->go_on();
  gradients[index].before_accumulation();
}

void GradientReducer::State::after_accumulation(std::size_t index) {
  const std::lock_guard lock(mutex);
  skip = false;
  gradients[index].after_accumulation();
  if (gradients[index].pending()) await_end();
}

bool GradientReducer::State::all_done() const {
  return std::all_of(gradients.begin(), gradients.end(),
                     [](const ReducedGradient& gradient) { return gradient.done(); });
}

bool GradientReducer::State::any_pending() const {
  return std::any_of(gradients.begin(), gradients.end(),
                     [](const ReducedGradient& gradient) { return gradient.pending(); });
}

bool GradientReducer::State::is_frozen() const {
  return open && !has_told && settings.options.process_set.size() > 1 &&
         std::none_of(gradients.begin(), gradients.end(),
                      [](const ReducedGradient& gradient) { return gradient.takes_part(); });
}

bool GradientReducer::State::any_wanted() const {
  return std::any_of(gradients.begin(), gradients.end(),
                     [](const ReducedGradient& gradient) { return gradient.wanted(); });
}

void GradientReducer::State::await_end() {
  const int pass = torch::autograd::get_current_graph_task_id();
  if (!passes.insert(pass).second) return;
  queue_backward_callback([weak = weak_from_this(), pass] {
    if (const auto self = weak.lock()) self->end_pass(pass);
  });
}

void GradientReducer::State::await_outer_end() {
  call_in_outer_backward([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock(self->mutex);
    self->await_end();
  });
}

void GradientReducer::State::end_pass(int pass) {
  const std::lock_guard lock(mutex);
  passes.erase(pass);
  // A backward inside a node of another one, which may bring the missing gradients.
  const bool is_inner = torch::autograd::get_current_node() != nullptr;
  if (!is_inner) passes.clear();  // also those that exceptions ended earlier
  for (std::size_t i = 0; i < gradients.size() && !is_inner; ++i)
    gradients[i].catch_up(weak_from_this(), i);
  if (!any_pending()) return;
  if (is_inner && !std::all_of(gradients.begin(), gradients.end(), [](const auto& gradient) {
        return gradient.state() == ReducedGradient::State::kUnderWay || gradient.done();
      })) {
    for (ReducedGradient& gradient : gradients) gradient.hide();
    await_outer_end();
    return;
  }
  refuse_samples();
  await_samples();
  // Ranks without samples make no backward. All ranks know them, so no rank tells.
  if (!open || idle_ranks > 0) {
    for (ReducedGradient& gradient : gradients) gradient.hide();
    return;
  }
  comparison->set_loss(backward_values({pass}));
  tell(false);
  // Runs after the first callbacks of all optimizers that this backward has reached, perhaps in
  // another order on other ranks.
  queue_backward_callback([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock_of_hearing(self->mutex);
    self->hear();
    if (self->comparison->is_settled()) return;
    queue_backward_callback([weak] {
      if (const auto still = weak.lock()) still->comparison->settle();
    });
  });
}

void GradientReducer::State::tell(bool nothing) {
  open = false;
  has_told = true;
  const std::size_t cells = gradients.size() + kToldCount + StateComparison::kCells;
  torch::Tensor mine = torch::zeros({static_cast<std::int64_t>(cells)}, torch::kInt32);
  auto* const under_way = mine.mutable_data_ptr<std::int32_t>();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    under_way[i] = !nothing && gradients[i].state() == ReducedGradient::State::kUnderWay ? 1 : 0;
  std::int32_t* const told = under_way + gradients.size();
  told[kNothing] = nothing ? 1 : 0;
  comparison->tell(told + kToldCount);
  const StepScope scope = settings.step->scope();
  ready = allreduce_async_(
      mine, {.name = prefix + "ready gradients", .process_set = settings.options.process_set});
}

torch::Tensor GradientReducer::State::await_alike(TensorWork& work) {
  try {
    return settings.step->await(work);
  } catch (const OutOfStep& error) {
    // Operations that only some ranks have under way must end before the next step.
    open = false;
    for (ReducedGradient& gradient : gradients) gradient.want();
    for (ReducedGradient& gradient : gradients) gradient.hide();
    raise(error.code(), std::string("DistributedOptimizer: ") + error.what() +
                            ", each of which begins with zero_grad() and has its backwards on all "
                            "ranks. This step's gradients are of no use; go on with zero_grad()");
  }
}

void GradientReducer::State::hear() {
  if (!ready.valid()) return;
  TensorWork work = std::exchange(ready, {});
  const torch::Tensor sum = await_alike(work);
  const auto* const ranks = sum.const_data_ptr<std::int32_t>();
  const auto known = static_cast<std::size_t>(sum.numel()) - kToldCount - StateComparison::kCells;
  const std::int32_t* const told = ranks + known;
  // No other round follows after a rank has reached synchronize().
  const bool alike =
      told[kNothing] == 0 && std::all_of(ranks, ranks + known, [&](std::int32_t count) {
        return count == 0 || count == work.participants();
      });
  FirstFailure failure;
  failure.attempt([&] { comparison->hear(told + kToldCount, work.participants()); });
  for (std::size_t i = 0; i < known; ++i) {
    if (ranks[i] == work.participants()) {
      failure.attempt([&] { gradients[i].finish(); });
    } else if (ranks[i] > 0) {
      gradients[i].want();
    }
  }
  for (ReducedGradient& gradient : gradients) gradient.hide();
  open = alike;
  failure.rethrow();
}

void GradientReducer::State::refuse_samples() {
  const bool lacks_some =
      settings.options.weigh_by_samples && !settings.samples && !samples.valid();
  if (!lacks_some || samples_refused) return;
  const bool has_new = std::any_of(
      gradients.begin(), gradients.end(),
      [](const ReducedGradient& gradient) { return gradient.pending() || gradient.is_new(); });
  if (!has_new) return;
  samples_refused = true;
  const std::string why = "weigh_by_samples needs set_sample_count() before each step's backward";
  samples = std::move(refuse({prefix + "(samples)"}, why, "", settings).front());
}

void GradientReducer::State::await_samples() {
  if (!samples.valid()) return;
  TensorWork work = std::exchange(samples, {});
  const torch::Tensor sum = await_alike(work);
  settings.total_samples = sum[0].item<std::int64_t>();
  idle_ranks = sum[1].item<std::int64_t>();
}

void GradientReducer::State::end_left_out() {
  FirstFailure ignored;  // ignored: everything that follows is forgotten
  ignored.attempt([&] { hear(); });
  ignored.attempt([&] { await_samples(); });
  const bool tells = open && idle_ranks == 0;
  if (!passes.empty()) {
    // A backward has ended by an exception, perhaps on this rank alone. What the other ranks submit
    // meets this rank's report of the interruption, not its gradients of the next step.
    if (tells) ignored.attempt([&] { tell(true); });
    for (ReducedGradient& gradient : gradients)
      ignored.attempt([&] { gradient.submit_missing(kInterrupted); });
    ignored.attempt([&] { hear(); });
  } else if (tells) {
    return;
  }
  submit_rest(ignored);
  finish_rest(ignored);
}

void GradientReducer::State::submit_rest(FirstFailure& failure) {
  for (ReducedGradient& gradient : gradients) failure.attempt([&] { gradient.submit_missing(); });
  // Starts groups whose last members no longer require a gradient.
  for (GradientGroup& group : groups) failure.attempt([&] { group.start_if_ready(); });
}

void GradientReducer::State::finish_rest(FirstFailure& failure) {
  for (ReducedGradient& gradient : gradients) failure.attempt([&] { gradient.finish(); });
}

void GradientReducer::State::forget_rounds() {
  ready.drain();
  ready = {};
  comparison->forget();
  open = true;
  has_told = false;
  idle_ranks = 0;
  samples_refused = false;
  passes.clear();
}

}  // namespace kolo
