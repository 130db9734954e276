// Checks what a ShardedOptimizer is made from, and that it is the same on all ranks. The training
// loop's thread.
#include "bindings/torch/gradients/gradient_groups.h"
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

std::string signature_of(const ShardedParameter& parameter) {
  return fmt::format("'{}' of group {}: {} [{}], strides [{}]", parameter.name, parameter.group,
                     torch::toString(parameter.tensor.scalar_type()),
                     fmt::join(parameter.tensor.sizes(), ", "),
                     fmt::join(parameter.tensor.strides(), ", "));
}

/// The first character of what a rank tells instead of its parameters; the reason follows.
constexpr char kIsInvalid = '!';
constexpr char kIsUnsupported = '?';

/// The lines that this rank tells the others: name, tab, value on this rank. Or the error of
/// `check` or of the parameters.
std::string told_of(const std::vector<ShardedParameter>& parameters, const Together& together,
                    const ShardedOptimizerOptions& options, const std::function<void()>& check) {
  std::string told;
  try {
    check();
    told = fmt::format(
        "op\t{}\ngradient_predivide_factor\t{}\ngradients_are_reduced\t{}\nbucket_cap_mb\t{}\n"
        "groups\t{}\n",
        to_string(options.op), options.gradient_predivide_factor, options.gradients_are_reduced,
        options.bucket_cap_mb, together);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const ShardedParameter& parameter = parameters[i];
      static_cast<void>(data_type_of(parameter.tensor, parameter.name));
      told += fmt::format("parameter {}\t{}\n", i, signature_of(parameter));
      if (const std::string owner = owned_by_another(parameter, options); !owner.empty())
        wrong(ErrorCode::kInvalidArgument, owner);
      if (is_dense(parameter.tensor)) continue;
      wrong(ErrorCode::kInvalidArgument,
            "parameter '" + parameter.name +
                "' shares elements or has gaps between them; make it contiguous()");
    }
  } catch (const Exception& error) {
    const bool is_unsupported = error.code() == ErrorCode::kUnsupported;
    return (is_unsupported ? kIsUnsupported : kIsInvalid) + std::string(error.what());
  } catch (const std::exception& error) {
    return kIsInvalid + reason_of(error);
  }
  return told;
}

/// Describes the first difference: "bucket_cap_mb is 25 on rank 0, but 10 on rank 1".
std::string difference(const std::string& first, int first_rank, const std::string& other,
                       int other_rank) {
  std::istringstream first_lines(first);
  std::istringstream other_lines(other);
  std::string line;
  std::string other_line;
  do {
    line.clear();
    other_line.clear();
    std::getline(first_lines, line);
    std::getline(other_lines, other_line);
  } while (line == other_line);
  // The shorter list ends at a parameter that only the other list has.
  const std::string& longer = line.empty() ? other_line : line;
  const std::size_t name = longer.find('\t');
  const auto value_of = [name](const std::string& of) {
    return of.empty() ? "no parameter" : of.substr(name + 1);
  };
  return fmt::format("{} is {} on rank {}, but {} on rank {}", longer.substr(0, name),
                     value_of(line), first_rank, value_of(other_line), other_rank);
}

}  // namespace

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

std::vector<std::string> allgather_texts(const std::string& text, const std::string& name,
                                         const ProcessSet& set) {
  const auto count = static_cast<std::int64_t>(text.size());
  const auto sizes = allgather(torch::tensor({count}, torch::kInt64),
                               {.name = name + "/sizes", .process_set = set});
  std::vector<std::string> texts(static_cast<std::size_t>(sizes.numel()));
  if (sizes.sum().item<std::int64_t>() == 0) return texts;
  const auto all =
      allgather(torch::from_blob(const_cast<char*>(text.data()), {count}, torch::kUInt8),
                {.name = name, .process_set = set});
  const char* at = static_cast<const char*>(all.const_data_ptr());
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const auto length = sizes[static_cast<std::int64_t>(r)].item<std::int64_t>();
    texts[r].assign(at, static_cast<std::size_t>(length));
    at += length;
  }
  return texts;
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
  const ParameterNames names(named, "ShardedOptimizer: ");
  std::vector<ShardedParameter> listed;
  for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    const auto& parameters = optimizer.param_groups()[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      listed.push_back({names.of(parameters[i], g, i), parameters[i], g});
  }
  check_distinct(listed);
  return listed;
}

Together groups_of(const std::vector<ShardedParameter>& parameters, const GradientGroups& groups) {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;
  for (const ShardedParameter& parameter : parameters) {
    names.push_back(parameter.name);
    tensors.push_back(parameter.tensor);
  }
  return members_of("ShardedOptimizer", groups, names, tensors);
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

void check_member(const ProcessSet& set) {
  if (set.rank() >= 0) return;
  wrong(ErrorCode::kInvalidArgument,
        fmt::format("rank {} is not in the process set of ranks {}; make it on these alone",
                    kolo::rank(), fmt::join(set.ranks(), ", ")));
}

void check_parameters(const std::vector<ShardedParameter>& parameters, const Together& together,
                      const ShardedOptimizerOptions& options, const std::string& prefix,
                      const std::function<void()>& check) {
  const auto all = allgather_texts(told_of(parameters, together, options, check),
                                   prefix + "parameters", options.process_set);
  const std::string& first = all.front();
  const std::vector<int> ranks = options.process_set.ranks();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::string& theirs = all[r];
    const bool is_unsupported = theirs.starts_with(kIsUnsupported);
    if (is_unsupported || theirs.starts_with(kIsInvalid)) {
      raise(is_unsupported ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
            fmt::format("rank {}: {}", ranks[r], theirs.substr(1)));
    }
    if (theirs == first) continue;
    wrong(ErrorCode::kMismatch, difference(first, ranks[0], theirs, ranks[r]) +
                                    "; make the same module and optimizer on every rank");
  }
}

}  // namespace kolo
