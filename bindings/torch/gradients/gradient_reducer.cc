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
    raise(ErrorCode::kInvalidArgument, "parameter '" + name +
                                           "' is in another DistributedOptimizer or "
                                           "DistributedDataParallel already, as '" +
                                           *owner +
                                           "'; a parameter belongs to one: end that one first "
                                           "(optimizer.reset(), where a pointer gets the next)");
  }
}

/// What must be the same on all ranks: one line per option and one per parameter, for agree().
std::vector<std::string> lines_of(const std::vector<std::string>& names,
                                  const std::vector<torch::Tensor>& parameters,
                                  const std::vector<std::vector<std::size_t>>& groups,
                                  const DistributedOptimizerOptions& options) {
  std::vector<std::string> lines{
      fmt::format("option 'op'\t{}", to_string(options.op)),
      fmt::format("option 'backward_passes_per_step'\t{}", options.backward_passes_per_step),
      fmt::format("option 'gradient_predivide_factor'\t{}", options.gradient_predivide_factor),
      fmt::format("option 'weigh_by_samples'\t{}", options.weigh_by_samples)};
  std::vector<std::string> group_of(names.size(), "in no group");
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::size_t member : groups[g]) group_of[member] = fmt::format("in group {}", g);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const torch::Tensor& tensor = parameters[i];
    lines.push_back(fmt::format(
        "parameter '{}'\t{} [{}]\t{}\t{}", names[i], torch::toString(tensor.scalar_type()),
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
  tensors.insert(tensor.unsafeGetTensorImpl());
  gradients.emplace_back(prefix + name, std::move(tensor), settings);
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
    named.emplace_back(gradient.name().substr(prefix.size()), gradient.parameter());
  return named;
}

GradientReducer::GradientReducer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                 const NamedTensors& named,
                                 const DistributedOptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  check_initialized("DistributedOptimizer");
  state_->number = NameNumber("optimizer", options.process_set.id());
  state_->prefix = state_->number.prefix();
  state_->settings = {options, {}, {}, std::make_shared<StepCount>(options.process_set)};
  state_->comparison.emplace(
      StateComparison::Options{"DistributedOptimizer", state_->prefix, options.process_set,
                               [state = state_.get()] { return state->parameters(); }});
  std::vector<std::string> lines;
  FirstFailure failure;
  failure.attempt([&] { lines = state_->take_parameters(groups, named); });
  agree("DistributedOptimizer", state_->prefix + "(parameters)", lines,
        failure_of([&] { failure.rethrow(); }), options.process_set);
  failure.rethrow();
}

std::vector<std::string> GradientReducer::State::take_parameters(
    const std::vector<torch::optim::OptimizerParamGroup>& groups_of_optimizer,
    const NamedTensors& named) {
  const DistributedOptimizerOptions& options = settings.options;
  check(options);
  const ParameterNames names(named, /*prefix=*/"");
  std::vector<std::string> names_in_order;
  std::vector<torch::Tensor> parameters;
  for (std::size_t g = 0; g < groups_of_optimizer.size(); ++g) {
    const auto& of_group = groups_of_optimizer[g].params();
    for (std::size_t i = 0; i < of_group.size(); ++i) {
      const std::string& name = names.of(of_group[i], g, i);
      if (!tensors.insert(of_group[i].unsafeGetTensorImpl()).second) refuse_twice(name, name);
      names_in_order.push_back(name);
      parameters.push_back(of_group[i]);
    }
  }
  const auto together =
      members_of("DistributedOptimizer", options.groups, names_in_order, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) add(parameters[i], names_in_order[i]);
  for (const auto& members : together) {
    std::vector<ReducedGradient*> of_group;
    for (const std::size_t index : members) of_group.push_back(&gradients[index]);
    groups.emplace_back(prefix + "group" + std::to_string(groups.size()), std::move(of_group),
                        settings);
  }
  return lines_of(names_in_order, parameters, together, options);
}

GradientReducer::~GradientReducer() {
  // Not during an exception, which one rank may have alone.
  if (std::uncaught_exceptions() == 0) state_->end_left_out();
  state_->samples.drain();
  state_->ready.drain();
  for (ReducedGradient& gradient : state_->gradients) gradient.discard(false);
}

void GradientReducer::check_group(std::size_t index,
                                  const torch::optim::OptimizerParamGroup& group) const {
  std::map<const void*, std::string> seen;
  for (std::size_t i = 0; i < group.params().size(); ++i) {
    const torch::Tensor& tensor = group.params()[i];
    const void* const key = tensor.unsafeGetTensorImpl();
    const std::string name = name_in(index, i);
    const auto [it, is_new] = seen.emplace(key, name);
    if (!is_new) refuse_twice(it->second, name);
    if (!state_->tensors.contains(key)) {
      check_unowned(tensor, name);
      continue;
    }
    for (const ReducedGradient& gradient : state_->gradients) {
      if (gradient.is_of(key)) refuse_twice(gradient.name(), name);
    }
  }
}

void GradientReducer::adopt(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const torch::Tensor& tensor = groups[g].params()[i];
      if (state_->tensors.contains(tensor.unsafeGetTensorImpl())) continue;
      state_->add(tensor, name_in(g, i));
    }
  }
}

void GradientReducer::adopt_for_step(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  const bool knows_all = std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
    return std::all_of(group.params().begin(), group.params().end(), [&](const auto& tensor) {
      return state_->tensors.contains(tensor.unsafeGetTensorImpl());
    });
  });
  if (knows_all) return;
  synchronize();  // other ranks may wait for this rank's report on the earlier parameters
  adopt(groups);
}

void GradientReducer::look_at(const torch::optim::Optimizer& optimizer) {
  state_->comparison->set_optimizer(values_of(optimizer, /*whole_state=*/true));
}

void GradientReducer::set_sample_count(std::int64_t samples) {
  if (!state_->settings.options.weigh_by_samples || samples < 0) {
    raise(ErrorCode::kInvalidArgument,
          "set_sample_count(" + std::to_string(samples) + "): " +
              (samples < 0 ? "a count is not negative"
                           : "the optimizer was made without weigh_by_samples"));
  }
  state_->samples.drain();
  state_->settings.step->go_on();
  const StepScope scope = state_->settings.step->scope();
  state_->idle_ranks = 0;
  state_->settings.samples = samples;
  state_->samples = allreduce_async(
      torch::tensor({samples, std::int64_t{samples == 0 ? 1 : 0}}, torch::kInt64),
      {.name = state_->prefix + "(samples)", .process_set = state_->settings.options.process_set});
}

void GradientReducer::synchronize() {
  State& state = *state_;
  state.settings.step->go_on();
  FirstFailure failure;
  failure.attempt([&] { state.hear(); });  // pending if backward failed at something else
  for (std::size_t i = 0; i < state.gradients.size(); ++i) {
    failure.attempt([&] { state.install(i); });
  }
  if (state.all_done() && !state.is_frozen()) {
    failure.attempt([&] { state.comparison->settle(); });
    failure.rethrow();
    return;
  }
  bool weighed = false;
  failure.attempt([&] {
    state.refuse_samples();
    state.await_samples();
    weighed = true;
  });
  // If this failed, a rank with a backward did not tell either.
  if (weighed && state.open && state.idle_ranks == 0) failure.attempt([&] { state.tell(true); });
  state.submit_rest(failure);
  failure.attempt([&] { state.hear(); });
  // Other ranks have more gradients for parameters that are done here.
  if (state.any_wanted()) state.submit_rest(failure);
  state.finish_rest(failure);
  failure.attempt([&] { state.comparison->settle(); });
  // Nothing is left out any more, even if parts have failed.
  state.passes.clear();
  state.idle_ranks = 0;
  state.open = true;
  failure.rethrow();
}

void GradientReducer::synchronize_for_step() {
  State& state = *state_;
  // Gradients that were cleared since are no longer synchronized.
  if (!std::exchange(state.skip, false) || !state.all_done()) synchronize();
  state.settings.step->end();
  for (ReducedGradient& gradient : state.gradients) gradient.settle();
  state.step_samples = std::exchange(state.settings.samples, std::nullopt);
  state.forget_rounds();
}

void GradientReducer::skip_next() {
  if (pending() > 0) {
    raise(ErrorCode::kInvalidArgument,
          "skip_synchronize(): gradients are under way; call synchronize() first");
  }
  state_->skip = true;
}

void GradientReducer::discard(bool gradients_stay) {
  state_->end_left_out();
  state_->samples.drain();
  state_->samples = {};
  state_->settings.samples.reset();
  state_->skip = false;
  state_->forget_rounds();
  for (std::size_t i = 0; i < state_->gradients.size(); ++i) {
    state_->gradients[i].discard(gradients_stay);
    state_->install(i);
  }
  state_->settings.step->begin();
}

std::size_t GradientReducer::pending() const {
  std::size_t count = 0;
  for (const ReducedGradient& gradient : state_->gradients) count += gradient.pending() ? 1 : 0;
  return count;
}

ProcessSet GradientReducer::process_set() const { return state_->settings.options.process_set; }

torch::Tensor GradientReducer::reduce_loss(const torch::Tensor& loss) const {
  const State& state = *state_;
  const DistributedOptimizerOptions& options = state.settings.options;
  TensorAllreduceOptions allreduce_options{
      .op = options.op == ReduceOp::kSum ? ReduceOp::kSum : ReduceOp::kAverage,
      .name = state.prefix + "(loss)",
      .process_set = options.process_set};
  const torch::Tensor mine = loss.detach();
  if (!state.step_samples) return allreduce(mine, allreduce_options);
  // A mean of no samples is NaN.
  const torch::Tensor weighed = *state.step_samples == 0
                                    ? torch::zeros_like(mine)
                                    : mine * static_cast<double>(*state.step_samples);
  allreduce_options.op = ReduceOp::kSum;
  const std::int64_t all = state.settings.total_samples.value_or(0);
  return allreduce(weighed, allreduce_options) /
         static_cast<double>(std::max<std::int64_t>(all, 1));
}

}  // namespace kolo
