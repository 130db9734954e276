// Buckets of parameters, and this rank's pieces of them. The training loop's thread.
#include "bindings/torch/gradients/buckets.h"
#include "bindings/torch/gradients/sharded_parameters_state.h"

#include <kolo/torch/functions.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

namespace kolo {

void ShardedParameters::State::add_buckets(std::size_t first, const Together& together) {
  std::vector<AgreedLayout> layouts;
  for (const ShardedParameter& parameter : parameters) layouts.push_back(parameter.layout);
  std::set<std::size_t> assigned;
  const auto assign = [&](const std::vector<std::size_t>& order, double cap_mb) {
    for (auto& members : assign_buckets(layouts, order, cap_mb, cap_mb)) {
      ShardBucket& bucket = buckets.emplace_back();
      for (const std::size_t index : members) {
        parameters[index].offset = bucket.size;
        bucket.size += layouts[index].numel();
        assigned.insert(index);
      }
      bucket.parameters = std::move(members);
    }
  };
  for (const auto& members : together) assign(members, std::numeric_limits<double>::infinity());
  std::vector<std::size_t> rest;
  for (std::size_t i = first; i < parameters.size(); ++i)
    if (!assigned.contains(i)) rest.push_back(i);
  assign(rest, options.bucket_cap_mb);
}

std::vector<std::string> ShardedParameters::State::names_in(std::size_t bucket) const {
  std::vector<std::string> names;
  for (const std::size_t index : buckets[bucket].parameters)
    names.push_back(parameters[index].name);
  return names;
}

void ShardedParameters::State::cut(std::size_t first_bucket, std::size_t group_count) {
  std::vector<std::vector<torch::Tensor>> tensors(group_count - groups.size());
  for (std::size_t b = first_bucket; b < buckets.size(); ++b) {
    auto& mine = pieces.emplace_back();
    for (const ShardPiece& piece : pieces_of(buckets[b], parameters, rank, size)) {
      const ShardedParameter& parameter = parameters[piece.parameter];
      torch::Tensor tensor = torch::empty({0}, parameter.tensor.options().requires_grad(false));
      tensor.set_data(
          parameter.layout.flat_of(parameter.tensor).narrow(0, piece.begin, piece.size));
      mine.push_back({piece, tensor});
      tensors[parameter.group - groups.size()].push_back(tensor);
    }
  }
  for (auto& list : tensors) groups.emplace_back(std::move(list));
  // Keep what a synchronize() found: its step may be still to come.
  present.resize(parameters.size(), false);
}

void ShardedParameters::State::put_back_pieces() {
  const torch::NoGradGuard no_grad;
  for (const auto& bucket : pieces) {
    for (const OwnPiece& piece : bucket) {
      const ShardedParameter& parameter = parameters[piece.parameter];
      if (parameter.layout.orders(parameter.tensor)) continue;
      parameter.tensor.detach().copy_(parameter.layout.on(piece.tensor));
    }
  }
}

void ShardedParameters::State::take_own_gradients() {
  for (const auto& bucket : pieces) {
    for (const OwnPiece& piece : bucket) {
      const ShardedParameter& parameter = parameters[piece.parameter];
      torch::Tensor gradient = parameter.tensor.grad();
      if (gradient.defined())
        gradient = parameter.layout.flat_of(gradient).narrow(0, piece.begin, piece.size).detach();
      piece.tensor.mutable_grad() = gradient;
    }
  }
}

void ShardedParameters::State::remember_gradients() {
  taken.clear();
  for (const ShardedParameter& parameter : parameters) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    taken.push_back({TakenGradient::Weak(gradient.getIntrusivePtr()), {}});
    if (!gradient.defined() || gradient.is_inference()) continue;  // no version
    const bool shared = options.gradients_are_reduced && parameter.layout.orders(gradient);
    if (!shared) taken.back().version = gradient._version();
  }
}

std::string ShardedParameters::State::changed_layout() {
  // A bucket that was converted or moved as a whole stays one bucket.
  for (const ShardBucket& bucket : buckets) {
    const torch::Tensor& first = parameters[bucket.parameters.front()].tensor;
    const bool alike =
        std::all_of(bucket.parameters.begin(), bucket.parameters.end(), [&](std::size_t index) {
          const torch::Tensor& tensor = parameters[index].tensor;
          return tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device();
        });
    if (!alike) continue;
    for (const std::size_t index : bucket.parameters) parameters[index].layout.convert_to(first);
  }
  for (const ShardedParameter& parameter : parameters) {
    const std::string change = parameter.layout.change_in(parameter.tensor);
    if (!change.empty()) {
      return "parameter '" + parameter.name + "' " + change +
             "; make a new ShardedOptimizer after such a change";
    }
  }
  return "";
}

std::string ShardedParameters::State::refusal() {
  if (std::string why = changed_layout(); !why.empty()) return why;
  std::vector<const void*> now;
  for (const ShardedParameter& parameter : parameters) {
    now.push_back(parameter.tensor.const_data_ptr());
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && gradient.is_sparse()) {
      return "the gradient of '" + parameter.name +
             "' is sparse; use DistributedOptimizer for it, or a layer with dense gradients";
    }
    if (gradient.defined() && gradient.sizes() != parameter.layout.sizes()) {
      return fmt::format("the gradient of '{}' has the sizes [{}], but the parameter has [{}]",
                         parameter.name, fmt::join(gradient.sizes(), ", "),
                         fmt::join(parameter.layout.sizes(), ", "));
    }
    if (std::string why = owned_by_another(parameter, options); !why.empty()) return why;
  }
  if (now == memory) return "";
  std::string why = overlap_in(parameters);
  if (why.empty()) memory = std::move(now);
  return why;
}

bool ShardedParameters::State::has_new_gradients() const {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].tensor.grad();
    if (!gradient.defined()) continue;
    if (i >= taken.size()) return true;
    const TakenGradient& old = taken[i];
    if (gradient.unsafeGetTensorImpl() != old.tensor._unsafe_get_target()) return true;
    if (old.version && gradient._version() != *old.version) return true;
  }
  return false;
}

bool ShardedParameters::State::was_half_cleared() const {
  bool any_cleared = false;
  for (const auto& bucket : pieces) {
    for (const OwnPiece& piece : bucket) {
      if (piece.tensor.grad().defined()) return false;
      any_cleared = any_cleared || present[piece.parameter];
    }
  }
  if (!any_cleared) return false;
  for (std::size_t i = 0; i < taken.size(); ++i)
    if (taken[i].was_written(parameters[i].tensor.grad())) return true;
  return false;
}

bool ShardedParameters::State::may_skip() {
  if (!skip) return false;
  // If this rank refuses something, let synchronize() tell all ranks.
  const bool is_new = has_new_gradients() || !refusal().empty();
  const torch::Tensor any_new = torch::tensor({is_new ? 1 : 0}, torch::kUInt8);
  // A backward may have left this rank without any new gradient.
  const StepScope scope = round.step().scope();
  TensorWork work = allreduce_async_(
      any_new,
      {.op = ReduceOp::kMax, .name = round.prefix() + "new", .process_set = options.process_set});
  round.step().await(work);
  return !any_new.item<bool>();
}

}  // namespace kolo
