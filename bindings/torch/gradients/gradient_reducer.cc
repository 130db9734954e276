// GradientReducer: starts a gradient's all-reduce when the gradient is accumulated, and waits for
// all of them. reduced_gradient.cc has a gradient's own state and its way to the other ranks;
// backward_end.cc has the end of backward().
#include "bindings/torch/gradients/agreement.h"
#include "bindings/torch/gradients/gradient_reducer_state.h"
#include "bindings/torch/gradients/parameter_names.h"
#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <utility>

namespace kolo {
namespace {

void check(const DistributedOptimizerOptions& options) {
  const auto wrong = [](const std::string& what) {
    raise(ErrorCode::kInvalidArgument, "DistributedOptimizer: " + what);
  };
  if (options.backward_passes_per_step < 1) {
    wrong("backward_passes_per_step is " + std::to_string(options.backward_passes_per_step) +
          "; it is 1 or more");
  }
  const double factor = options.gradient_predivide_factor;
  if (!(factor > 0) || factor > 1e30) {
    wrong("gradient_predivide_factor is " + std::to_string(factor) + "; it is above 0");
  }
  if (options.op != ReduceOp::kAverage && options.op != ReduceOp::kSum &&
      options.op != ReduceOp::kAdasum) {
    wrong("op is " + std::string(to_string(options.op)) + "; it is average, sum or adasum");
  }
  if (options.weigh_by_samples && options.backward_passes_per_step > 1) {
    wrong("weigh_by_samples weighs one backward a step; backward_passes_per_step is " +
          std::to_string(options.backward_passes_per_step));
  }
  if (options.op == ReduceOp::kAverage) return;
  if (factor != 1.0) wrong("gradient_predivide_factor divides averages; op must be kAverage");
  if (options.weigh_by_samples) wrong("weigh_by_samples makes averages; op must be kAverage");
}

[[noreturn]] void refuse_twice(const std::string& name, const std::string& second) {
  refuse_listed_twice("DistributedOptimizer", name, second);
}

void check_unowned(const torch::Tensor& tensor, const std::string& name) {
  if (const auto owner = GradientHooks::owner_of(tensor)) {
    raise(ErrorCode::kInvalidArgument,
          "parameter '" + name +
              "' is in another DistributedOptimizer or "
              "DistributedDataParallel already, as '" +
              *owner +
              "'; a parameter belongs to one: end that one first "
              "(optimizer.reset(), or in Python del optimizer, where a "
              "variable gets the next)");
  }
}

/// What must be the same on all ranks: one line per option and one per parameter, for agree().
std::vector<std::string> lines_of(const NamedTensors& parameters,
                                  const std::vector<std::vector<std::size_t>>& groups,
                                  const DistributedOptimizerOptions& options) {
  std::vector<std::string> lines{
      fmt::format("option 'op'\t{}", to_string(options.op)),
      fmt::format("option 'backward_passes_per_step'\t{}", options.backward_passes_per_step),
      fmt::format("option 'gradient_predivide_factor'\t{}", options.gradient_predivide_factor),
      fmt::format("option 'weigh_by_samples'\t{}", options.weigh_by_samples)};
  std::vector<std::string> group_of(parameters.size(), "in no group");
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::size_t member : groups[g]) group_of[member] = fmt::format("in group {}", g);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    lines.push_back(fmt::format(
        "parameter '{}'\t{} [{}]\t{}\t{}", name, torch::toString(tensor.scalar_type()),
        fmt::join(tensor.sizes(), ", "),
        tensor.requires_grad() ? "trained (requires_grad)" : "frozen (no requires_grad)",
        group_of[i]));
  }
  return lines;
}

std::string name_in(std::size_t group, std::size_t index) {
  return "group" + std::to_string(group) + ".parameter" + std::to_string(index);
}

}  // namespace

void GradientReducer::refuse_moved() {
  raise(ErrorCode::kInvalidArgument,
        "DistributedOptimizer: it was moved away, and what is left has nothing to do with the "
        "gradients; use what it was moved to");
}

void GradientReducer::State::add(torch::Tensor tensor, const std::string& name) {
  check_unowned(tensor, name);
  names.emplace(tensor.unsafeGetTensorImpl(), round.prefix() + name);
  gradients.emplace_back(round.prefix() + name, std::move(tensor), settings);
  groups.emplace_back("", std::vector{&gradients.back()}, settings);
  install(gradients.size() - 1);
}

void GradientReducer::State::install(std::size_t index) {
  // Autograd accepts hooks only for tensors that require a gradient. A frozen parameter gets its
  // hooks when it is first seen unfrozen.
  gradients[index].install(weak_from_this(), index);
}

NamedTensors GradientReducer::State::parameters() const {
  NamedTensors named;
  for (const ReducedGradient& gradient : gradients)
    named.emplace_back(gradient.name().substr(round.prefix().size()), gradient.parameter());
  return named;
}

std::uint32_t GradientReducer::State::trained() const {
  std::uint32_t hash = 0;
  for (const ReducedGradient& gradient : gradients)
    hash = 31 * hash + (gradient.parameter().requires_grad() ? 1 : 2);
  return hash;
}

GradientReducer::State::State(const DistributedOptimizerOptions& options)
    : BackwardRound({.holder = "DistributedOptimizer",
                     .kind = "optimizer",
                     .process_set = options.process_set,
                     .parameters = [this] { return parameters(); },
                     .trained = [this] { return trained(); },
                     .steps =
                         ", each of which begins with zero_grad() and has its backwards on all "
                         "ranks"}),
      settings{options, round.step()} {}

GradientReducer::GradientReducer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                 const NamedTensors& named,
                                 const DistributedOptimizerOptions& options) {
  begin(groups, named, options);
}

void GradientReducer::begin(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                            const NamedTensors& named, const DistributedOptimizerOptions& options) {
  state_ = std::make_shared<State>(options);
  agree("DistributedOptimizer", state_->round.prefix() + "(parameters)", options.process_set,
        [&] { return state_->take_parameters(groups, named); });
}

std::vector<std::string> GradientReducer::State::take_parameters(
    const std::vector<torch::optim::OptimizerParamGroup>& groups_of_optimizer,
    const NamedTensors& named) {
  const DistributedOptimizerOptions& options = settings.options;
  check(options);
  NamedTensors listed;
  for (auto& [name, tensor, group] :
       list_named("DistributedOptimizer", groups_of_optimizer, named)) {
    if (!names.emplace(tensor.unsafeGetTensorImpl(), round.prefix() + name).second)
      refuse_twice(name, name);
    listed.emplace_back(name, tensor);
  }
  const auto together = members_of("DistributedOptimizer", options.groups, listed);
  for (const auto& [name, tensor] : listed) add(tensor, name);
  for (std::size_t g = 0; g < together.size(); ++g) {
    std::vector<ReducedGradient*> of_group;
    for (const std::size_t index : together[g]) of_group.push_back(&gradients[index]);
    groups.emplace_back(round.prefix() + "group" + std::to_string(g), std::move(of_group),
                        settings);
  }
  return lines_of(listed, together, options);
}

GradientReducer::~GradientReducer() { end(); }

void GradientReducer::leave_world() {
  if (!left_) left_.emplace(state_->parameters(), state_->settings.options);
  end();
  state_.reset();
}

void GradientReducer::enter_world(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  begin(groups, left_->first, left_->second);
  left_.reset();
}

GradientReducer::State& GradientReducer::in_world() const {
  if (!left_) return *state_;
  raise(ErrorCode::kInvalidArgument,
        "DistributedOptimizer: its world has ended, and it is not in the next one: make it before "
        "elastic::run(), which then takes it along, or anew in each world; after an error of run() "
        "end the program");
}

void GradientReducer::end() {
  if (!state_) return;
  // Not during an exception, which one rank may have alone.
  if (std::uncaught_exceptions() == 0) state_->end_left_out();
  state_->round.drop();
  for (ReducedGradient& gradient : state_->gradients) gradient.discard(false);
}

void GradientReducer::check_group(std::size_t index,
                                  const torch::optim::OptimizerParamGroup& group) const {
  std::map<const void*, std::string> names = in_world().names;
  for (std::size_t i = 0; i < group.params().size(); ++i) {
    const torch::Tensor& tensor = group.params()[i];
    const std::string name = name_in(index, i);
    const auto [it, is_new] = names.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new) refuse_twice(it->second, name);
    check_unowned(tensor, name);
  }
}

NamedTensors GradientReducer::State::unknown_of(
    const std::vector<torch::optim::OptimizerParamGroup>& groups_of_optimizer) const {
  NamedTensors unknown;
  for (std::size_t g = 0; g < groups_of_optimizer.size(); ++g) {
    const auto& tensors = groups_of_optimizer[g].params();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (!names.contains(tensors[i].unsafeGetTensorImpl()))
        unknown.emplace_back(name_in(g, i), tensors[i]);
  }
  return unknown;
}

void GradientReducer::adopt(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  State& state = in_world();
  for (const auto& [name, tensor] : state.unknown_of(groups))
    if (!state.names.contains(tensor.unsafeGetTensorImpl())) state.add(tensor, name);
}

void GradientReducer::adopt_for_step(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  if (in_world().unknown_of(groups).empty()) return;
  synchronize();  // other ranks may wait for this rank's report on the earlier parameters
  adopt(groups);
}

void GradientReducer::look_at(const torch::optim::Optimizer& optimizer) {
  in_world().round.comparison().set_optimizer(values_of(optimizer, /*whole_state=*/true));
}

void GradientReducer::set_sample_count(std::int64_t samples) {
  State& state = in_world();
  const DistributedOptimizerOptions& options = state.settings.options;
  if (!options.weigh_by_samples) {
    raise(ErrorCode::kInvalidArgument, "set_sample_count(" + std::to_string(samples) +
                                           "): the optimizer was made without weigh_by_samples");
  }
  SampleShare::check(samples);
  state.round.step().go_on();
  const StepScope scope = state.round.step().scope();
  state.settings.samples.tell(samples, state.round.prefix() + "(samples)", options.process_set);
}

void GradientReducer::synchronize() {
  State& state = in_world();
  check_initialized("DistributedOptimizer");
  state.round.step().go_on();
  FirstFailure failure;
  failure.attempt([&] { state.hear(); });  // pending if backward failed at something else
  for (std::size_t i = 0; i < state.gradients.size(); ++i) {
    failure.attempt([&] { state.install(i); });
  }
  if (state.all_done() && !state.is_frozen()) {
    failure.attempt([&] { state.settle(); });
    state.has_averages = state.has_averages && !failure.has_failed();
    failure.rethrow();
    return;
  }
  failure.attempt([&] {
    state.refuse_samples();
    state.hear_samples();
    // If this failed, a rank with a backward did not tell either.
    if (state.rounds != State::Rounds::kClosed)
      state.tell(!state.settings.samples.has_idle_ranks());
  });
  state.submit_rest(failure);
  failure.attempt([&] { state.hear(); });
  // Also where other ranks have more gradients for parameters that are done here.
  state.submit_rest(failure);
  state.finish_rest(failure);
  failure.attempt([&] { state.settle(); });
  // Nothing is left out any more, even if parts have failed.
  state.leave();
  if (state.rounds == State::Rounds::kClosed) state.rounds = State::Rounds::kAlike;
  state.has_averages = state.has_averages && !failure.has_failed();
  failure.rethrow();
}

void GradientReducer::synchronize_for_step() {
  State& state = in_world();
  // Gradients that were cleared since are no longer synchronized.
  if (!std::exchange(state.skip, false) || !state.all_done()) synchronize();
  state.round.step().end();
  for (ReducedGradient& gradient : state.gradients) gradient.settle();
  state.step_samples = state.settings.samples.end();
  state.forget_rounds();
}

void GradientReducer::skip_next() {
  if (pending() > 0) {
    raise(ErrorCode::kInvalidArgument,
          "skip_synchronize(): gradients are under way; call synchronize() first");
  }
  in_world().skip = true;
}

void GradientReducer::discard(bool gradients_stay) {
  State& state = in_world();
  state.end_left_out();
  state.has_dropped = state.has_dropped || state.has_averages;
  state.settings.samples.drop();
  state.skip = false;
  state.forget_rounds();
  for (std::size_t i = 0; i < state.gradients.size(); ++i) {
    state.gradients[i].discard(gradients_stay);
    state.install(i);
  }
  state.round.step().begin();
}

std::size_t GradientReducer::pending() const { return in_world().pending(); }

ProcessSet GradientReducer::process_set() const { return in_world().settings.options.process_set; }

torch::Tensor GradientReducer::reduce_loss(const torch::Tensor& loss) const {
  const State& state = in_world();
  const DistributedOptimizerOptions& options = state.settings.options;
  TensorAllreduceOptions allreduce_options{
      .op = options.op == ReduceOp::kSum ? ReduceOp::kSum : ReduceOp::kAverage,
      .name = state.round.prefix() + "(loss)",
      .process_set = options.process_set};
  const torch::Tensor mine = loss.detach();
  if (!state.step_samples) return allreduce(mine, allreduce_options);
  // A mean of no samples is NaN.
  const torch::Tensor weighed = *state.step_samples == 0
                                    ? torch::zeros_like(mine)
                                    : mine * static_cast<double>(*state.step_samples);
  allreduce_options.op = ReduceOp::kSum;
  const std::int64_t all = state.settings.samples.all();
  return allreduce(weighed, allreduce_options) /
         static_cast<double>(std::max<std::int64_t>(all, 1));
}

}  // namespace kolo
