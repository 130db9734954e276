// The end of a backward of DistributedOptimizer. Decides which gradients are finished at once, so
// that the training loop finds averages.
#include "bindings/torch/gradients/gradient_reducer_state.h"
#include "bindings/torch/gradients/parameter_names.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

using GradientState = ReducedGradient::State;

constexpr const char* kReadyGradients = "ready gradients";
/// What a cell of a round has for each rank whose gradient is under way: it counts both kinds.
constexpr std::int32_t kDense = 1;
constexpr std::int32_t kSparse = 65'535;  // room for 32,768 ranks of each kind
constexpr const char* kInterrupted =
    "its backward() has ended by an exception and left this gradient out";

/// The messages of ranks whose optimizers have different numbers of parameters differ in size.
std::vector<std::int32_t> hear_cells(Round& round, std::size_t parameters) {
  try {
    return round.hear();
  } catch (const OutOfStep&) {
    throw;
  } catch (const Exception& error) {
    if (error.code() != ErrorCode::kMismatch) throw;
    raise(error.code(),
          fmt::format("{}; these shapes count parameters, of which this rank's optimizer has {}: "
                      "add the same groups on every rank (add_param_group())",
                      error.what(), parameters));
  }
}

}  // namespace

void GradientReducer::State::before_accumulation(std::size_t index) {
  const std::lock_guard lock(mutex);
  round.step().go_on();
  gradients[index].before_accumulation();
}

void GradientReducer::State::after_accumulation(std::size_t index) {
  const std::lock_guard lock(mutex);
  skip = false;
  gradients[index].after_accumulation();
  if (gradients[index].pending()) follow();
}

bool GradientReducer::State::all_done() const {
  return std::all_of(gradients.begin(), gradients.end(),
                     [](const ReducedGradient& gradient) { return gradient.done(); });
}

std::size_t GradientReducer::State::pending() const {
  return static_cast<std::size_t>(
      std::count_if(gradients.begin(), gradients.end(),
                    [](const ReducedGradient& gradient) { return gradient.pending(); }));
}

bool GradientReducer::State::is_frozen() const {
  return rounds == Rounds::kNone && settings.options.process_set.size() > 1 &&
         std::none_of(gradients.begin(), gradients.end(),
                      [](const ReducedGradient& gradient) { return gradient.takes_part(); });
}

void GradientReducer::State::hide_all() {
  for (ReducedGradient& gradient : gradients) gradient.hide();
}

void GradientReducer::State::end_backward() {
  const std::lock_guard lock(mutex);
  const std::shared_ptr<Backward> backward = Backward::current();
  const bool is_inner = Backward::is_inner();
  leave(is_inner ? backward : nullptr);  // the outermost: also those that exceptions ended earlier
  for (std::size_t i = 0; i < gradients.size() && !is_inner; ++i)
    gradients[i].catch_up(weak_from_this(), i);
  if (pending() == 0) return;
  // The outer backward may bring the missing gradients.
  if (is_inner && !std::all_of(gradients.begin(), gradients.end(), [](const auto& gradient) {
        return gradient.state() == GradientState::kUnderWay || gradient.done();
      })) {
    hide_all();
    follow_outer();
    return;
  }
  refuse_samples();
  hear_samples();
  // Ranks without samples make no backward. All ranks know them, and tell in synchronize() only.
  if (rounds == Rounds::kClosed || settings.samples.has_idle_ranks()) {
    hide_all();
    return;
  }
  round.comparison().set_loss(backward->values());
  tell(false);
  // Runs after the first callbacks of all optimizers that this backward has reached, perhaps in
  // another order on other ranks.
  queue(&State::end_round);
}

void GradientReducer::State::end_round() {
  const std::lock_guard lock(mutex);
  queue(&State::settle);
  hear();
}

void GradientReducer::State::tell(bool nothing) {
  rounds = Rounds::kClosed;
  // Cells: ranks with it under way, by parameter; number of ranks with nothing.
  std::vector<std::int32_t> cells;
  for (const ReducedGradient& gradient : gradients) {
    const bool is_under_way = !nothing && gradient.state() == GradientState::kUnderWay;
    cells.push_back(!is_under_way ? 0 : gradient.is_sparse().value_or(false) ? kSparse : kDense);
  }
  cells.push_back(nothing ? 1 : 0);
  round.comparison().set_dropped(std::exchange(has_dropped, false));
  round.tell(kReadyGradients, std::move(cells));
}

template <class Action>
auto GradientReducer::State::alike(Action&& action) {
  try {
    return action();
  } catch (const OutOfStep& error) {
    // Operations that only some ranks have under way must end before the next step.
    rounds = Rounds::kClosed;
    for (ReducedGradient& gradient : gradients) gradient.want();
    hide_all();
    round.raise_out_of_step(error);
  }
}

std::vector<std::string> GradientReducer::State::names_under_way() const {
  std::vector<std::string> found;
  for (const ReducedGradient& gradient : gradients)
    if (gradient.state() == GradientState::kUnderWay)
      found.push_back(gradient.name().substr(round.prefix().size()));
  return found;
}

void GradientReducer::State::hear() {
  if (!round.is_told()) return;
  has_averages = false;
  const std::vector<std::int32_t> ranks = alike([&] {
    return wait_naming(
        round.prefix() + kReadyGradients, [&] { return names_under_way(); },
        [&] { return hear_cells(round, gradients.size()); });
  });
  const std::size_t known = ranks.size() - 1;
  bool is_alike = ranks[known] == 0;  // after a rank's synchronize() no other round follows
  FirstFailure failure;
  for (std::size_t i = 0; i < known; ++i) {
    if (ranks[i] == 0) continue;
    const std::int32_t sparse = ranks[i] / kSparse;
    const std::int32_t under_way = ranks[i] % kSparse + sparse;
    gradients[i].note_sparse(sparse > 0);
    if (under_way == round.participants()) {
      failure.attempt([&] { gradients[i].finish(); });
    } else {
      gradients[i].want();
      is_alike = false;
    }
  }
  hide_all();
  if (is_alike) rounds = Rounds::kAlike;
  failure.rethrow();
  has_averages = true;
}

void GradientReducer::State::settle() {
  const bool had_averages = std::exchange(has_averages, false);
  round.settle();
  has_averages = had_averages;
}

void GradientReducer::State::refuse_samples() {
  SampleShare& samples = settings.samples;
  const auto is_of_step = [](const auto& gradient) {
    return gradient.pending() || gradient.is_new();
  };
  if (settings.options.weigh_by_samples && samples.is_missing() &&
      std::any_of(gradients.begin(), gradients.end(), is_of_step)) {
    samples.refuse("step's backward", round.prefix() + "(samples)", settings.options.process_set);
  }
}

void GradientReducer::State::hear_samples() {
  SampleShare& samples = settings.samples;
  if (!samples.is_under_way()) return;
  // If this fails, it does on all ranks, and no round is to come. The operations that only some
  // ranks have under way end before the next step: a late rank would fall behind once more.
  const Rounds rounds_before = std::exchange(rounds, Rounds::kClosed);
  alike([&] { samples.hear(round.step()); });
  rounds = rounds_before;
}

void GradientReducer::State::end_left_out() {
  FirstFailure ignored;  // ignored: everything that follows is forgotten
  ignored.attempt([&] { hear(); });
  ignored.attempt([&] { hear_samples(); });
  const bool tells = rounds != Rounds::kClosed;
  const bool is_interrupted = !backwards.empty();
  if (is_interrupted || (settings.samples.has_idle_ranks() && rounds == Rounds::kNone)) {
    if (tells) ignored.attempt([&] { tell(true); });
    // A backward has ended by an exception, perhaps on this rank alone. What the other ranks submit
    // meets this rank's report of the interruption, not its gradients of the next step.
    for (ReducedGradient& gradient : gradients)
      if (is_interrupted) ignored.attempt([&] { gradient.submit_missing(kInterrupted); });
    ignored.attempt([&] { hear(); });
  } else if (tells) {
    return;
  }
  submit_rest(ignored);
  finish_rest(ignored);
  has_averages = has_averages && !ignored.has_failed();
}

void GradientReducer::State::submit_rest(FirstFailure& failure) {
  for (ReducedGradient& gradient : gradients) {
    // The other ranks tell how they have it.
    if (round.is_told() && !gradient.is_sparse() && !gradient.is_new()) continue;
    failure.attempt([&] { gradient.submit_missing(); });
  }
  // Starts groups whose last members no longer require a gradient.
  for (ReducedGradient& gradient : gradients)
    failure.attempt([&] { gradient.group().start_if_ready(); });
}

void GradientReducer::State::finish_rest(FirstFailure& failure) {
  for (ReducedGradient& gradient : gradients) failure.attempt([&] { gradient.finish(); });
}

void GradientReducer::State::forget_rounds() {
  round.drop();
  rounds = Rounds::kNone;
  has_averages = false;
  leave();
}

}  // namespace kolo
