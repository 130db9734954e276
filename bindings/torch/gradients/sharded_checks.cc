// Checks what a ShardedOptimizer is made from, and that it is the same on all ranks. The training
// loop's thread.
#include "bindings/torch/gradients/gradient_hooks.h"
#include "bindings/torch/gradients/parameter_names.h"
#include "bindings/torch/gradients/sharded_parameters_state.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>
#include <kolo/torch/objects.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace kolo {
namespace {

[[noreturn]] void wrong(ErrorCode code, const std::string& what) {
  raise(code, "ShardedOptimizer: " + what);
}

/// Whether it has taken a step. Adagrad creates its state in its constructor.
bool has_stepped(const torch::optim::Optimizer& optimizer) {
  return std::any_of(optimizer.state().begin(), optimizer.state().end(), [](const auto& item) {
    const auto* const adagrad =
        dynamic_cast<const torch::optim::AdagradParamState*>(item.second.get());
    return adagrad == nullptr || adagrad->step() > 0;
  });
}

}  // namespace

void ShardedParameters::refuse_moved() {
  wrong(ErrorCode::kInvalidArgument, "it was moved away; use what it was moved to");
}

std::string owned_by_another(const ShardedParameter& parameter,
                             const ShardedOptimizerOptions& options) {
  if (options.gradients_are_reduced) return "";
  const auto owner = GradientHooks::owner_of(parameter.tensor);
  if (!owner) return "";
  return fmt::format(
      "parameter '{}' is reduced already, as '{}'; set gradients_are_reduced behind a "
      "DistributedDataParallel, and use no DistributedOptimizer beside this",
      parameter.name, *owner);
}

std::string overlap_in(const std::vector<ShardedParameter>& parameters) {
  std::vector<std::pair<const std::byte*, const ShardedParameter*>> ranges;
  for (const ShardedParameter& parameter : parameters) {
    if (!is_dense(parameter.tensor) || parameter.tensor.nbytes() == 0) continue;
    ranges.emplace_back(static_cast<const std::byte*>(parameter.tensor.const_data_ptr()),
                        &parameter);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const auto& [begin, before] = ranges[i - 1];
    if (ranges[i].first >= begin + before->tensor.nbytes()) continue;
    return fmt::format(
        "parameters '{}' and '{}' lie in one memory, and each would be stepped on by another rank; "
        "register one tensor under both names, or use DistributedOptimizer",
        before->name, ranges[i].second->name);
  }
  return "";
}

void check_distinct(const std::vector<ShardedParameter>& parameters) {
  std::map<const void*, std::string> names;
  for (const ShardedParameter& parameter : parameters) {
    const auto [it, is_new] = names.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
    if (!is_new) refuse_listed_twice("ShardedOptimizer", it->second, parameter.name);
  }
  if (const std::string why = overlap_in(parameters); !why.empty())
    wrong(ErrorCode::kInvalidArgument, why);
}

std::vector<ShardedParameter> list_parameters(const torch::optim::Optimizer& optimizer,
                                              const NamedTensors& named) {
  std::vector<ShardedParameter> listed;
  for (auto& [name, tensor, group] :
       list_named("ShardedOptimizer", optimizer.param_groups(), named))
    listed.push_back({name, tensor, group});
  check_distinct(listed);
  return listed;
}

void check_sharded(const torch::optim::Optimizer& optimizer,
                   const ShardedOptimizerOptions& options) {
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer) != nullptr) {
    wrong(ErrorCode::kUnsupported,
          "LBFGS looks at all parameters at once, so its state cannot be split by elements; use "
          "DistributedOptimizer for it");
  }
  if (has_stepped(optimizer)) {
    wrong(ErrorCode::kInvalidArgument,
          "the optimizer has state of its own already; make it from a new one, and load its "
          "checkpoint into the ShardedOptimizer");
  }
  if (options.op != ReduceOp::kAverage && options.op != ReduceOp::kSum) {
    wrong(ErrorCode::kInvalidArgument,
          fmt::format("op is {}; it is average or sum", to_string(options.op)));
  }
  const double factor = options.gradient_predivide_factor;
  if (!(factor > 0) || factor > 1e30) {
    wrong(ErrorCode::kInvalidArgument,
          fmt::format("gradient_predivide_factor is {}; it is above 0", factor));
  }
  if (factor != 1.0 && options.op != ReduceOp::kAverage) {
    wrong(ErrorCode::kInvalidArgument,
          "gradient_predivide_factor divides averages; op must be kAverage");
  }
  if (!(options.bucket_cap_mb > 0)) {
    wrong(ErrorCode::kInvalidArgument,
          fmt::format("bucket_cap_mb is {}; it is above 0", options.bucket_cap_mb));
  }
}

std::vector<std::string> lines_of(const std::vector<ShardedParameter>& parameters,
                                  const Together& together,
                                  const ShardedOptimizerOptions& options) {
  std::vector<std::string> lines{
      fmt::format("op\t{}", to_string(options.op)),
      fmt::format("gradient_predivide_factor\t{}", options.gradient_predivide_factor),
      fmt::format("gradients_are_reduced\t{}", options.gradients_are_reduced),
      fmt::format("bucket_cap_mb\t{}", options.bucket_cap_mb), fmt::format("groups\t{}", together)};
  std::size_t count = 0;
  for (const ShardedParameter& parameter : parameters) {
    static_cast<void>(data_type_of(parameter.tensor, parameter.name));
    if (const std::string owner = owned_by_another(parameter, options); !owner.empty())
      wrong(ErrorCode::kInvalidArgument, owner);
    if (!is_dense(parameter.tensor)) {
      wrong(ErrorCode::kInvalidArgument,
            "parameter '" + parameter.name +
                "' shares elements or has gaps between them; make it contiguous()");
    }
    lines.push_back(fmt::format(
        "parameter {}\t'{}' of group {}: {} [{}], strides [{}]", count++, parameter.name,
        parameter.group, torch::toString(parameter.tensor.scalar_type()),
        fmt::join(parameter.tensor.sizes(), ", "), fmt::join(parameter.tensor.strides(), ", ")));
  }
  lines.push_back(fmt::format("parameter {}\tno parameter", count));
  return lines;
}

}  // namespace kolo
