#include "bindings/torch/gradients/gradient_groups.h"

#include "bindings/core/refusals.h"
#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/sparse_parts.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

namespace kolo {
namespace {

using Members = std::vector<std::vector<std::size_t>>;

[[noreturn]] void wrong(const std::string& optimizer, const std::string& what) {
  raise(ErrorCode::kInvalidArgument, optimizer + ": groups: " + what);
}

/// In order and as evenly as possible; the first groups have one more.
Members dealt(const std::string& optimizer, int count, std::size_t parameters) {
  if (count < 1) {
    wrong(optimizer,
          std::to_string(count) + " groups are not possible; give 1 or more, or no number at all");
  }
  const std::size_t groups = std::min(static_cast<std::size_t>(count), parameters);
  Members members(groups);
  std::size_t next = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::size_t length = parameters / groups + (g < parameters % groups ? 1 : 0);
    for (std::size_t i = 0; i < length; ++i) members[g].push_back(next++);
  }
  return members;
}

/// The members that `index_of` finds; `text` names a member in errors.
template <class T, class IndexOf, class Text>
Members listed(const std::string& optimizer, const std::vector<std::vector<T>>& groups,
               const IndexOf& index_of, const Text& text) {
  Members members;
  std::map<std::size_t, std::size_t> group_of;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].empty()) wrong(optimizer, "group " + std::to_string(g) + " is empty");
    auto& list = members.emplace_back();
    for (std::size_t i = 0; i < groups[g].size(); ++i) {
      const std::optional<std::size_t> index = index_of(groups[g][i]);
      if (!index) {
        wrong(optimizer, text(g, i) + " of group " + std::to_string(g) +
                             " is no parameter of the optimizer; name its parameters as "
                             "named_parameters() does");
      }
      const auto [it, is_new] = group_of.emplace(*index, g);
      if (!is_new) {
        wrong(optimizer, text(g, i) + " is in group " + std::to_string(it->second) +
                             " and in group " + std::to_string(g) +
                             "; a parameter is in one, once");
      }
      list.push_back(*index);
    }
  }
  return members;
}

std::string refusal_of(const std::vector<ReducedGradient*>& members) {
  const auto refused =
      std::find_if(members.begin(), members.end(),
                   [](const ReducedGradient* member) { return !member->refusal().empty(); });
  return refused == members.end() ? "" : (*refused)->refusal();
}

}  // namespace

Members members_of(const std::string& optimizer, const GradientGroups& groups,
                   const NamedTensors& parameters) {
  if (const auto* const count = std::get_if<int>(&groups))
    return dealt(optimizer, *count, parameters.size());
  const auto place_of = [&](const auto& is_it) -> std::optional<std::size_t> {
    const auto it = std::find_if(parameters.begin(), parameters.end(), is_it);
    if (it == parameters.end()) return std::nullopt;
    return static_cast<std::size_t>(it - parameters.begin());
  };
  if (const auto* const lists = std::get_if<std::vector<std::vector<std::string>>>(&groups)) {
    return listed(
        optimizer, *lists,
        [&](const std::string& name) {
          return place_of([&](const auto& other) { return other.first == name; });
        },
        [&](std::size_t g, std::size_t i) { return "'" + (*lists)[g][i] + "'"; });
  }
  if (const auto* const lists = std::get_if<std::vector<std::vector<torch::Tensor>>>(&groups)) {
    const auto index_of = [&](const torch::Tensor& tensor) {
      return place_of([&](const auto& other) { return other.second.is_same(tensor); });
    };
    return listed(optimizer, *lists, index_of, [&](std::size_t g, std::size_t i) {
      const auto index = index_of((*lists)[g][i]);
      return index ? "'" + parameters[*index].first + "'" : "tensor " + std::to_string(i);
    });
  }
  return {};
}

GradientGroup::GradientGroup(std::string name, std::vector<ReducedGradient*> members,
                             const ReductionSettings& settings)
    : name_(std::move(name)), members_(std::move(members)), settings_(settings) {
  for (ReducedGradient* const member : members_) member->enter(*this);
}

bool GradientGroup::done() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const ReducedGradient* member) { return member->done(); });
}

void GradientGroup::start_if_ready() {
  std::vector<ReducedGradient*> taking_part;
  for (ReducedGradient* const member : members_) {
    if (!member->takes_part()) continue;
    if (member->state() != ReducedGradient::State::kWaiting) return;
    taking_part.push_back(member);
  }
  if (taking_part.empty()) return;
  const StepScope scope = settings_.step.scope();
  std::vector<TensorWork> works;
  std::string why = refusal_of(taking_part);
  if (why.empty()) {
    why = failure_of([&] {
      ready_.join();
      std::vector<TensorGroupMember> tensors;
      for (ReducedGradient* const member : taking_part) tensors.push_back(member->load());
      works = start(std::move(tensors));
    });
  }
  if (!why.empty()) {
    check_initialized("DistributedOptimizer");
    std::vector<std::string> names;
    for (const ReducedGradient* const member : taking_part) names.push_back(member->name());
    for (auto& work : refuse_allreduces(names, why, name_, settings_.options.process_set))
      works.emplace_back(TensorWorkParts{.work = std::move(work), .result = {}});
  }
  for (std::size_t i = 0; i < works.size(); ++i) taking_part[i]->start(std::move(works[i]));
}

TensorAllreduceOptions GradientGroup::reduction() const {
  const DistributedOptimizerOptions& options = settings_.options;
  TensorAllreduceOptions allreduce{
      .op = options.op, .name = name_, .process_set = options.process_set};
  if (options.weigh_by_samples) {
    allreduce.op = ReduceOp::kSum;  // divided by the samples of all ranks once these are known
  } else if (options.gradient_predivide_factor != 1.0) {
    allreduce.prescale = 1.0 / options.gradient_predivide_factor;
    allreduce.postscale = options.gradient_predivide_factor;
  }
  return allreduce;
}

std::vector<TensorWork> GradientGroup::start(std::vector<TensorGroupMember> tensors) const {
  TensorAllreduceOptions allreduce = reduction();
  if (is_listed()) return start_grouped_allreduce(std::move(tensors), allreduce);
  const TensorGroupMember& alone = tensors.front();
  if (alone.input.is_sparse()) {
    const torch::Tensor mine = alone.absent ? torch::Tensor() : alone.input;
    return {allgather_async(
        sparse_part_of(mine, alone.input.device(), allreduce.process_set, allreduce.prescale),
        {.name = alone.name, .process_set = allreduce.process_set})};
  }
  allreduce.name = alone.name;
  return {start_allreduce(alone.input, alone.output, allreduce, alone.absent)};
}

}  // namespace kolo
