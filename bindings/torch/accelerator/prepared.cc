// Decides when the objects that Accelerator::prepare() made step, clear gradients and advance their
// schedules. The training loop's thread.
#include <kolo/torch/prepared.h>

#include "bindings/torch/gradients/backward.h"
#include "bindings/torch/tensors/equal_values.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/sharded_parameters.h>

#include <c10/util/hash.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace kolo {
namespace {

/// Gives access to a protected member of LibTorch's schedulers.
struct Rates : torch::optim::LRScheduler {
  static std::vector<double> of(const torch::optim::LRScheduler& scheduler) {
    return (scheduler.*&Rates::get_current_lrs)();
  }
};

/// LibTorch does not tell which optimizer a scheduler belongs to. So set another learning rate and
/// see whether the scheduler reads it.
bool reads_rates_of(const torch::optim::LRScheduler& scheduler,
                    torch::optim::Optimizer& optimizer) {
  if (optimizer.param_groups().empty() || !optimizer.param_groups()[0].has_options()) return false;
  torch::optim::OptimizerOptions& options = optimizer.param_groups()[0].options();
  double rate = 0;
  try {
    rate = options.get_lr();
  } catch (const c10::Error&) {
    return false;  // it has no learning rate
  }
  const double other = rate == 0 ? 1 : 0;
  options.set_lr(other);
  const std::vector<double> with_other = Rates::of(scheduler);
  options.set_lr(rate);
  const std::vector<double> as_before = Rates::of(scheduler);
  return !with_other.empty() && with_other[0] == other && as_before[0] != other;
}

/// Visits the parameters that backward gives gradients; one that is listed twice is visited twice.
template <class Call>
void for_each_parameter(torch::optim::Optimizer& optimizer, const Call& call) {
  if (const auto* const sharded = dynamic_cast<const ShardedState*>(&optimizer)) {
    for (const torch::Tensor& parameter : sharded->whole_parameters()) call(parameter);
    return;
  }
  for (const auto& group : optimizer.param_groups())
    for (const torch::Tensor& parameter : group.params()) call(parameter);
}

[[noreturn]] void refuse_mixture(const char* call, const char* what) {
  raise(
      ErrorCode::kInvalidArgument,
      fmt::format("Accelerator: {} of an optimizer on rank {}: since its last step(), the backward "
                  "of another one has added to the gradients that it accumulates, {}; during "
                  "that backward, set requires_grad_(false) on its parameters",
                  call, rank(), what));
}

}  // namespace

std::uint64_t version_of_gradients(torch::optim::Optimizer& optimizer) {
  std::size_t hash = 0;
  for_each_parameter(optimizer, [&hash](const torch::Tensor& parameter) {
    const torch::Tensor& gradient = parameter.grad();
    hash =
        c10::hash_combine(hash, reinterpret_cast<std::uintptr_t>(gradient.unsafeGetTensorImpl()));
    if (gradient.defined())
      hash = c10::hash_combine(hash, static_cast<std::size_t>(gradient._version()));
  });
  return hash;
}

LoaderPass AcceleratorState::loader_pass() const {
  for (auto pass = loader_passes.rbegin(); pass != loader_passes.rend(); ++pass)
    if (const auto open = pass->lock(); open != nullptr && open->is_open) return *open;
  return {};
}

bool AcceleratorState::loop_has_last() const {
  const auto order = [](const LoaderPass& pass) {
    return std::tuple(pass.round, pass.round_before + 1 == pass.round, pass.length);
  };
  LoaderPass deciding;
  for (const auto& pass : loader_passes)
    if (const auto open = pass.lock(); open && open->is_open && order(*open) >= order(deciding))
      deciding = *open;
  return deciding.has_last;
}

std::uint64_t AcceleratorState::round_of_batch() {
  if (std::exchange(round_is_over, false)) ++round;
  return round;
}

std::uint64_t AcceleratorState::Steps::gradients() const {
  const auto alive = optimizer.lock();
  return alive == nullptr ? 0 : version_of_gradients(*alive);
}

void AcceleratorState::begin_pass() {
  if (accumulation_steps == 1) return;
  for (auto& [key, its] : steps) {
    // A pass of another optimizer leaves what this one holds.
    const std::uint64_t now = its.gradients();
    if (now != its.gradients_before && !its.has_stepped) its.holds_earlier = !sync_gradients;
    its.gradients_before = now;
    its.lost_earlier = false;
  }
}

void AcceleratorState::begin_backward() {
  ++backwards;
  any_since_backward = false;
  if (sync_gradients) return;
  for (auto& [key, its] : steps) {
    // A later zero_grad() could not tell the old gradients from those of this backward.
    if (!its.has_stepped || its.gradients() != its.gradients_at_step) continue;
    its.clear();
    end_clear(its);
  }
}

void AcceleratorState::rescale_held(double factor) {
  const torch::NoGradGuard no_grad;
  for (auto& [key, its] : steps) {
    const auto alive = its.optimizer.lock();
    if (!alive || !its.holds_earlier || its.has_stepped) continue;
    const std::uint64_t before = its.gradients();
    std::set<const void*> seen;
    for_each_parameter(*alive, [&](const torch::Tensor& parameter) {
      torch::Tensor& gradient = parameter.mutable_grad();
      if (gradient.defined() && seen.insert(gradient.unsafeGetTensorImpl()).second)
        gradient.mul_(factor);
    });
    const std::uint64_t now = its.gradients();
    if (its.gradients_before == before) its.gradients_before = now;
    if (its.gradients_at_step == before) its.gradients_at_step = now;
  }
}

void AcceleratorState::tell_optimizers(const torch::Tensor& loss) const {
  std::map<int, EqualValues> by_number;
  for (const auto& [key, its] : steps) {
    const auto alive = its.optimizer.lock();
    // Optimizers that reduce gradients report their values themselves.
    if (alive && dynamic_cast<const ReducingOptimizer*>(alive.get()) == nullptr)
      by_number[its.number] = values_of(*alive, /*whole_state=*/true, its.number);
  }
  EqualValues all;
  for (const auto& [number, values] : by_number) all.append(values);
  tell_with_backward(loss, all);
}

bool AcceleratorState::begin_step(Steps& its) {
  any_since_backward = true;
  its.was_asked = true;
  if (!sync_gradients) {
    its.gradients_at_step = its.gradients();
    its.is_last = false;
    return false;
  }
  if (its.lost_earlier && its.gradients() != its.gradients_before)
    refuse_mixture("step()", "so that zero_grad() had to drop both");
  return true;
}

void AcceleratorState::end_step(Steps& its, bool was_skipped) {
  its.has_stepped = true;
  its.holds_earlier = false;
  if (accumulation_steps > 1) its.gradients_at_step = its.gradients();
  its.was_skipped = was_skipped;
  its.is_last = true;
  ++its.count;
  its.backward = backwards;
}

bool AcceleratorState::begin_clear(Steps& its) {
  if (accumulation_steps == 1) return true;
  const std::uint64_t now = its.gradients();
  const auto at_step = std::exchange(its.gradients_at_step, std::nullopt);
  const bool is_mixed = !its.has_stepped && at_step && *at_step != now && any_since_backward;
  const bool adds_up =
      !its.has_stepped && (!sync_gradients || (its.holds_earlier && now == its.gradients_before));
  if (adds_up && is_mixed) refuse_mixture("zero_grad()", "which it cannot drop alone");
  its.lost_earlier = !adds_up && is_mixed;
  return !adds_up;
}

void AcceleratorState::end_clear(Steps& its) {
  its.has_stepped = false;
  its.holds_earlier = false;
  its.gradients_at_step.reset();
  if (accumulation_steps > 1) its.gradients_before = its.gradients();
}

void AcceleratorState::restart() {
  passes = 0;
  sync_gradients = true;
  holds_earlier = false;
  round_is_over = false;
  any_since_backward = false;
  for (auto& [key, its] : steps) {
    if (its.clear) its.clear();
    end_clear(its);
    its.gradients_at_step.reset();
    its.lost_earlier = its.was_asked = its.is_last = its.was_skipped = false;
  }
}

AcceleratorState::Steps* AcceleratorState::steps_of(const torch::optim::LRScheduler& scheduler) {
  for (auto& [key, its] : steps)
    if (const auto alive = its.optimizer.lock(); alive && reads_rates_of(scheduler, *alive))
      return &its;
  return nullptr;
}

bool AcceleratorState::schedule_goes_on(const torch::optim::LRScheduler& scheduler,
                                        std::uint64_t& seen) {
  const Steps* const its = steps_of(scheduler);
  if (its == nullptr) {
    const bool any_was_skipped = std::any_of(steps.begin(), steps.end(),
                                             [](const auto& of) { return of.second.was_skipped; });
    return sync_gradients && !any_was_skipped;
  }
  if (!its->was_asked) return sync_gradients;
  const bool is_new = std::exchange(seen, its->count) != its->count;
  return its->is_last && !its->was_skipped && (is_new || its->backward == backwards);
}

}  // namespace kolo
