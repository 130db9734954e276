// ShardedParameters: sends gradients to their pieces and new values to all ranks. Checks are in
// sharded_checks.cc, the pieces in sharded_pieces.cc, checkpoints in sharded_state.cc. The training
// loop's thread.
#include "bindings/core/input_parts.h"
#include "bindings/torch/gradients/agreement.h"
#include "bindings/torch/gradients/gradient_groups.h"
#include "bindings/torch/gradients/parameter_names.h"
#include "bindings/torch/gradients/sharded_parameters_state.h"

#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <deque>
#include <map>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kUnderWay = 2;  // buckets, at most

/// Runs `start` for each bucket and `finish` on each result; keeps a few operations under way.
/// `operation` returns the name of a bucket's operation.
template <class State, class Operation, class Start, class Finish>
void for_each_bucket(State& state, const Operation& operation, const Start& start,
                     const Finish& finish) {
  struct UnderWay : std::deque<std::pair<std::size_t, TensorWork>> {
    ~UnderWay() {
      for (auto& [bucket, work] : *this) work.drain();  // after a failure: names are reused
    }
  } works;
  const auto finish_first = [&] {
    auto [bucket, work] = std::move(works.front());
    works.pop_front();
    const torch::Tensor result = wait_naming(
        operation(bucket), [&] { return state.names_in(bucket); },
        [&] { return state.round.step().await(work); });
    finish(bucket, result);
  };
  for (std::size_t bucket = 0; bucket < state.buckets.size(); ++bucket) {
    if (TensorWork work = start(bucket); work.valid()) works.emplace_back(bucket, std::move(work));
    if (works.size() == kUnderWay) finish_first();
  }
  while (!works.empty()) finish_first();
}

std::vector<torch::Tensor> gradients_of(const std::vector<OwnPiece>& bucket) {
  std::vector<torch::Tensor> gradients;
  for (const OwnPiece& piece : bucket)
    if (piece.tensor.grad().defined()) gradients.push_back(piece.tensor.grad());
  return gradients;
}

/// The sum of the norms to the power of their type, or the largest, NaN if one is. The gradients
/// are on one device, and the sum is read once, because reading waits for the device.
double sum_of_norms(const std::vector<torch::Tensor>& gradients, double norm_type) {
  if (gradients.empty()) return 0;
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& gradient : gradients) {
    const torch::Tensor values = gradient.is_complex() ? gradient.abs() : gradient;
    const auto type = torch::promote_types(values.scalar_type(), torch::kFloat32);
    norms.push_back(values.norm(norm_type, torch::IntArrayRef(), false, type).to(torch::kFloat64));
  }
  const torch::Tensor all = torch::stack(norms);
  return (std::isinf(norm_type) ? all.max() : all.pow(norm_type).sum()).item<double>();
}

}  // namespace

ShardedParameters::State::State(const ShardedOptimizerOptions& given)
    : options(given),
      round({.holder = "ShardedOptimizer", .kind = "sharded", .process_set = options.process_set}),
      rank(options.process_set.rank()),
      size(options.process_set.size()) {
  if (rank >= 0) return;
  raise(ErrorCode::kInvalidArgument,
        fmt::format("ShardedOptimizer: rank {} is not in the process set of ranks {}; make it on "
                    "these alone",
                    kolo::rank(), fmt::join(options.process_set.ranks(), ", ")));
}

ShardedParameters::ShardedParameters(const torch::optim::Optimizer& optimizer,
                                     const NamedTensors& named,
                                     const ShardedOptimizerOptions& options)
    : state_(std::make_unique<State>(options)) {
  State& state = here();
  Together together;
  agree("ShardedOptimizer", state.round.prefix() + "parameters", options.process_set, [&] {
    check_sharded(optimizer, options);
    state.parameters = list_parameters(optimizer, named);
    NamedTensors listed;
    for (const ShardedParameter& parameter : state.parameters)
      listed.emplace_back(parameter.name, parameter.tensor);
    together = members_of("ShardedOptimizer", options.groups, listed);
    return lines_of(state.parameters, together, options);
  });
  state.add_buckets(0, together);
  state.cut(0, optimizer.param_groups().size());
  for (std::size_t g = 0; g < state.groups.size(); ++g) {
    state.groups[g].set_options(optimizer.param_groups()[g].options().clone());
  }
}

ShardedParameters::~ShardedParameters() = default;

const ShardedParameters::Groups& ShardedParameters::groups() const { return here().groups; }

ShardedParameters::Group ShardedParameters::add_group(
    const Group& group, const torch::optim::OptimizerOptions& defaults) {
  State& state = here();
  const std::size_t first = state.parameters.size();
  const std::size_t bucket = state.buckets.size();
  const std::size_t index = state.groups.size();
  std::vector<ShardedParameter> added;
  for (std::size_t i = 0; i < group.params().size(); ++i) {
    added.push_back({"group" + std::to_string(index) + ".parameter" + std::to_string(i),
                     group.params()[i], index});
  }
  std::vector<ShardedParameter> all = state.parameters;
  all.insert(all.end(), added.begin(), added.end());
  agree("ShardedOptimizer", state.round.prefix() + "parameters", state.options.process_set, [&] {
    check_distinct(all);
    return lines_of(added, {}, state.options);
  });
  state.parameters = std::move(all);
  state.add_buckets(first, {});
  state.cut(bucket, index + 1);
  state.groups.back().set_options(group.has_options() ? group.options().clone() : defaults.clone());
  return state.groups.back();
}

bool ShardedParameters::take_added_groups(torch::optim::Optimizer& mine,
                                          const torch::optim::OptimizerOptions& defaults) {
  EqualValues values = values_of(mine, /*whole_state=*/false);
  values.add("fingerprint of the loaded state", here().loaded);
  here().round.comparison().set_optimizer(std::move(values));
  auto& theirs = mine.param_groups();
  const Groups& known = here().groups;
  for (std::size_t g = 0; g < known.size(); ++g) {
    const std::size_t has = g < theirs.size() ? theirs[g].params().size() : 0;
    if (has == known[g].params().size()) continue;
    raise(ErrorCode::kInvalidArgument,
          "ShardedOptimizer: group " + std::to_string(g) + " has " + std::to_string(has) +
              " tensors, but it was made with this rank's " +
              std::to_string(known[g].params().size()) +
              " pieces; add parameters as a group, by add_param_group()");
  }
  const bool any = theirs.size() > known.size();
  for (std::size_t g = known.size(); g < theirs.size(); ++g)
    theirs[g] = add_group(theirs[g], defaults);
  return any;
}

TensorWork ShardedParameters::State::reduce_bucket(std::size_t b, const std::string& operation,
                                                   bool refuses) const {
  const ShardBucket& bucket = buckets[b];
  const torch::Tensor flat =
      torch::zeros({bucket.size}, parameters[bucket.parameters[0]].layout.options());
  for (const std::size_t index : bucket.parameters) {
    const ShardedParameter& parameter = parameters[index];
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && !refuses) parameter.layout.on(flat, parameter.offset).copy_(gradient);
  }
  const bool average = options.op == ReduceOp::kAverage;
  const double predivide = average ? options.gradient_predivide_factor : 1.0;
  const InputParts parts([&](std::uint64_t element) {
    std::string name;
    for (const std::size_t index : bucket.parameters)
      if (parameters[index].offset <= static_cast<std::int64_t>(element))
        name = parameters[index].name;
    return name;
  });
  return reducescatter_async(flat, {.op = ReduceOp::kSum,
                                    .name = operation,
                                    .prescale = 1.0 / predivide,
                                    .postscale = average ? predivide / size : 1.0,
                                    .process_set = options.process_set});
}

void ShardedParameters::State::take_gradients(std::size_t bucket, const torch::Tensor& mine,
                                              const std::vector<std::int32_t>& ranks) const {
  for (const OwnPiece& piece : pieces[bucket]) {
    const bool any = ranks[piece.parameter] > 0;
    // Detached, because torch::optim::Optimizer::zero_grad() refuses views.
    piece.tensor.mutable_grad() =
        any ? mine.narrow(0, piece.at, piece.size).detach() : torch::Tensor();
  }
}

void ShardedParameters::synchronize() {
  const torch::NoGradGuard no_grad;
  State& state = here();
  check_initialized("ShardedOptimizer");
  state.round.step().go_on();
  const StepScope scope = state.round.step().scope();
  const auto& options = state.options;
  const std::size_t count = state.parameters.size();
  if (state.was_half_cleared()) {
    TORCH_WARN_ONCE(
        "kolo: ShardedOptimizer: gradients add up over steps, for zero_grad() was called through "
        "torch::optim::Optimizer, which clears this rank's pieces alone; call it on the "
        "ShardedOptimizer itself, or on the module");
  }
  const std::string refusal = state.refusal();
  // Cells: number of ranks with a gradient, by parameter; number of ranks that refuse.
  std::vector<std::int32_t> ranks;
  for (const ShardedParameter& parameter : state.parameters)
    ranks.push_back(parameter.tensor.grad().defined() ? 1 : 0);
  ranks.push_back(refusal.empty() ? 0 : 1);
  state.round.tell("present", ranks);
  const auto hear = [&] {
    if (state.round.is_told()) ranks = state.round.hear();
  };
  const auto operation = [&](std::size_t b) {
    return state.round.prefix() + "gradients" + std::to_string(b);
  };
  const auto start = [&](std::size_t b) {
    return state.reduce_bucket(b, operation(b), !refusal.empty());
  };
  const auto finish = [&](std::size_t b, const torch::Tensor& mine) {
    hear();
    state.take_gradients(b, mine, ranks);
  };
  abort_on_timeout(
      [&] {
        if (!options.gradients_are_reduced) for_each_bucket(state, operation, start, finish);
        hear();
      },
      "ShardedOptimizer");
  if (ranks[count] > 0) state.throw_together(refusal);
  state.round.settle();
  if (options.gradients_are_reduced) state.take_own_gradients();
  for (std::size_t i = 0; i < count; ++i) state.present[i] = ranks[i] > 0;
  state.remember_gradients();
  state.skip = false;
}

std::uint32_t ShardedParameters::loaded_state() const { return here().loaded; }

void ShardedParameters::set_loaded_state(std::uint32_t fingerprint) { here().loaded = fingerprint; }

ProcessSet ShardedParameters::process_set() const { return here().options.process_set; }

std::vector<torch::Tensor> ShardedParameters::whole_parameters() const {
  std::vector<torch::Tensor> tensors;
  for (const ShardedParameter& parameter : here().parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

void ShardedParameters::skip_next() { here().skip = true; }

void ShardedParameters::step(const std::function<void()>& step_on_pieces) {
  check_initialized("ShardedOptimizer");
  here().round.step().go_on();
  if (!here().may_skip()) synchronize();
  here().skip = false;
  prepare_pieces();
  if (here().size == 1) {
    step_on_pieces();
    here().put_back_pieces();
    here().round.step().end();
    return;
  }
  abort_on_failure(step_on_pieces,
                   [] { return std::string("ShardedOptimizer: this rank's step has failed"); });
  abort_on_timeout(
      [&] {
        abort_on_failure([&] { exchange_values(); },
                         [] { return std::string("ShardedOptimizer: new values are lost"); });
      },
      "ShardedOptimizer");
  here().round.step().end();
}

void ShardedParameters::prepare_pieces() {
  const torch::NoGradGuard no_grad;
  for (const auto& bucket : here().pieces) {
    for (const OwnPiece& piece : bucket) {
      const ShardedParameter& parameter = here().parameters[piece.parameter];
      // The memory may have changed since the last step, if the module was moved or loaded.
      piece.tensor.set_data(
          parameter.layout.flat_of(parameter.tensor).narrow(0, piece.begin, piece.size));
    }
  }
}

void ShardedParameters::exchange_values() {
  const torch::NoGradGuard no_grad;
  State& state = here();
  const StepScope scope = state.round.step().scope();
  const auto operation = [&](std::size_t b) {
    return state.round.prefix() + "values" + std::to_string(b);
  };
  const auto start = [&](std::size_t b) -> TensorWork {
    const ShardBucket& bucket = state.buckets[b];
    const bool changed = std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                                     [&](std::size_t index) { return state.present[index]; });
    if (!changed) return {};
    std::vector<torch::Tensor> tensors;
    for (const OwnPiece& piece : state.pieces[b]) tensors.push_back(piece.tensor);
    const torch::Tensor mine =
        tensors.empty() ? torch::empty({0}, state.parameters[bucket.parameters[0]].tensor.options())
                        : torch::cat(tensors);
    return allgather_async(mine, {.name = operation(b), .process_set = state.options.process_set});
  };
  const auto finish = [&](std::size_t b, const torch::Tensor& values) {
    for (const std::size_t index : state.buckets[b].parameters) {
      const ShardedParameter& parameter = state.parameters[index];
      if (!state.present[index]) continue;
      parameter.tensor.detach().copy_(parameter.layout.on(values, parameter.offset));
    }
  };
  for_each_bucket(state, operation, start, finish);
}

void ShardedParameters::zero_grad(torch::optim::Optimizer& mine, bool set_to_none) {
  const auto clear = [set_to_none](const torch::Tensor& tensor) {
    torch::Tensor& gradient = tensor.mutable_grad();
    if (set_to_none) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient = gradient.detach();
      gradient.zero_();
    }
  };
  for (const ShardedParameter& parameter : here().parameters) clear(parameter.tensor);
  for (std::size_t g = here().groups.size(); g < mine.param_groups().size(); ++g) {
    for (const torch::Tensor& tensor : mine.param_groups()[g].params()) clear(tensor);
  }
  for (const auto& bucket : here().pieces)
    for (const OwnPiece& piece : bucket) piece.tensor.mutable_grad().reset();
  here().skip = false;
  here().round.step().begin();
}

double ShardedParameters::clip_grad_norm(double max_norm, double norm_type) {
  check_initialized("ShardedOptimizer");
  here().round.step().go_on();
  if (!here().may_skip()) synchronize();
  const torch::NoGradGuard no_grad;
  const bool largest = std::isinf(norm_type);
  std::vector<double> sums = {0};
  for (const auto& bucket : here().pieces)
    sums.push_back(sum_of_norms(gradients_of(bucket), norm_type));
  const torch::Tensor mine = torch::tensor(sums, torch::kFloat64);
  const double all =
      allreduce(largest ? mine.max() : mine.sum(), {.op = largest ? ReduceOp::kMax : ReduceOp::kSum,
                                                    .name = here().round.prefix() + "norm",
                                                    .process_set = here().options.process_set})
          .item<double>();
  const double norm = largest ? all : std::pow(all, 1.0 / norm_type);
  const double quotient = max_norm / (norm + 1e-6);
  const double factor = quotient > 1 ? 1 : quotient;  // NaN stays NaN
  for (const auto& bucket : here().pieces)
    for (const torch::Tensor& gradient : gradients_of(bucket)) gradient.mul_(factor);
  here().skip = true;
  return norm;
}

}  // namespace kolo
