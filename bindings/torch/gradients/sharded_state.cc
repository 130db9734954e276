// Gathers the state of a sharded optimizer, and splits it again. The training loop's thread.
#include "bindings/torch/gradients/agreement.h"
#include "bindings/torch/gradients/optimizer_archive.h"
#include "bindings/torch/gradients/sharded_parameters_state.h"
#include "bindings/torch/tensors/archive_bytes.h"
#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/fingerprint.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <kolo/torch/functions.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

/// A copy of `from` in which `change` replaces each tensor.
template <class Change>
std::unique_ptr<OptimizerParamState> changed(OptimizerParamState& from, const Change& change) {
  std::unique_ptr<OptimizerParamState> copy = from.clone();
  for (torch::Tensor* const tensor : tensors_of(*copy)) {
    if (tensor->defined()) *tensor = change(*tensor);
  }
  return copy;
}

std::unique_ptr<OptimizerParamState>* state_of(Optimizer& optimizer, const torch::Tensor& key) {
  const auto it = optimizer.state().find(key.unsafeGetTensorImpl());
  return it == optimizer.state().end() ? nullptr : &it->second;
}

}  // namespace

std::size_t state_bytes(const Optimizer& optimizer) {
  std::size_t bytes = 0;
  for (const auto& [key, state] : optimizer.state()) {
    for (const torch::Tensor* const tensor : tensors_of(*state)) {
      if (tensor->defined()) bytes += tensor->nbytes();
    }
  }
  return bytes;
}

void copy_options(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                  Optimizer& optimizer) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    optimizer.param_groups()[g].set_options(groups[g].options().clone());
  }
}

std::vector<std::string> ShardedParameters::State::gather_bytes(const std::string& bytes,
                                                                int root) const {
  const auto count = static_cast<std::int64_t>(bytes.size());
  const torch::Tensor mine =
      torch::from_blob(const_cast<char*>(bytes.data()), {count}, torch::kUInt8);
  const auto sizes =
      gather(torch::tensor({count}, torch::kInt64), root,
             {.name = round.prefix() + "state sizes", .process_set = options.process_set});
  const auto all =
      gather(mine, root, {.name = round.prefix() + "state", .process_set = options.process_set});
  std::vector<std::string> result;
  const char* at = static_cast<const char*>(all.data_ptr());
  for (std::int64_t r = 0; r < sizes.numel(); ++r) {
    const auto length = static_cast<std::size_t>(sizes[r].item<std::int64_t>());
    result.emplace_back(at, length);
    at += length;
  }
  return result;
}

void ShardedParameters::State::throw_together(const std::string& failure) const {
  agree("ShardedOptimizer", round.prefix() + "failures", options.process_set, [&] {
    if (!failure.empty()) raise(ErrorCode::kInvalidArgument, failure);
    return std::vector<std::string>();
  });
}

ShardedParameters::Groups ShardedParameters::whole_groups(const Optimizer& mine) const {
  std::vector<std::vector<torch::Tensor>> tensors(here().groups.size());
  for (const ShardedParameter& parameter : here().parameters) {
    tensors[parameter.group].push_back(parameter.tensor);
  }
  Groups groups;
  for (std::size_t g = 0; g < tensors.size(); ++g) {
    groups.emplace_back(std::move(tensors[g]), mine.param_groups()[g].options().clone());
  }
  return groups;
}

std::unique_ptr<Optimizer> ShardedParameters::consolidate(const Optimizer& mine, int root,
                                                          const Make& make, const Save& save) {
  const torch::NoGradGuard no_grad;
  State& state = here();
  check_initialized("ShardedOptimizer");
  if (!state.options.process_set.contains(root)) {
    raise(
        ErrorCode::kInvalidArgument,
        fmt::format("ShardedOptimizer: rank {} cannot have the whole state, for it is none of the "
                    "ranks {} that share it",
                    root, fmt::join(state.options.process_set.ranks(), ", ")));
  }
  std::string bytes;
  state.throw_together(failure_of([&] {
    if (std::string why = state.changed_layout(); !why.empty())
      raise(ErrorCode::kInvalidArgument, std::move(why));
    torch::serialize::OutputArchive archive;
    save(archive);
    bytes = bytes_of(archive);
  }));
  const std::vector<std::string> all = state.gather_bytes(bytes, root);
  std::unique_ptr<Optimizer> full;
  state.throw_together(failure_of([&] {
    if (kolo::rank() == root) full = put_together(all, mine, make);
  }));
  return full;
}

std::unique_ptr<Optimizer> ShardedParameters::put_together(const std::vector<std::string>& all,
                                                           const Optimizer& mine,
                                                           const Make& make) const {
  const State& state = here();
  std::unique_ptr<Optimizer> full = make(whole_groups(mine));
  full->state().clear();
  for (std::size_t r = 0; r < all.size(); ++r) {
    // The state of rank r, on tensors that stand for its pieces. It is kept on the CPU, as saved: a
    // device has no room for the whole state.
    Groups groups;
    for (std::size_t g = 0; g < state.groups.size(); ++g) {
      groups.emplace_back(std::vector<torch::Tensor>(), mine.param_groups()[g].options().clone());
    }
    std::vector<std::pair<ShardPiece, torch::Tensor>> theirs;
    for (const ShardBucket& bucket : state.buckets) {
      for (const ShardPiece& piece :
           pieces_of(bucket, state.parameters, static_cast<int>(r), state.size)) {
        const ShardedParameter& parameter = state.parameters[piece.parameter];
        theirs.emplace_back(piece,
                            torch::empty({0}, parameter.tensor.options().device(torch::kCPU)));
        groups[parameter.group].params().push_back(theirs.back().second);
      }
    }
    const std::unique_ptr<Optimizer> shard = make(groups);
    torch::serialize::InputArchive input;
    input.load_from(all[r].data(), all[r].size(), torch::kCPU);
    load_optimizer(*shard, input);
    for (const auto& [piece, stand_in] : theirs) {
      const auto* const part = state_of(*shard, stand_in);
      if (part == nullptr) continue;
      const ShardedParameter& whole = state.parameters[piece.parameter];
      auto& target = full->state()[whole.tensor.unsafeGetTensorImpl()];
      if (target == nullptr) {
        target = changed(**part, [&](const torch::Tensor& tensor) {
          return whole.layout.zeros(torch::TensorOptions(tensor.scalar_type()).device(torch::kCPU));
        });
      }
      const auto from = tensors_of(**part);
      const auto to = tensors_of(*target);
      for (std::size_t i = 0; i < from.size(); ++i) {
        if (!from[i]->defined()) continue;
        whole.layout.flat_of(*to[i]).narrow(0, piece.begin, piece.size).copy_(*from[i]);
      }
    }
  }
  return full;
}

void ShardedParameters::check_consolidated(bool consolidated) const {
  if (consolidated) return;
  raise(ErrorCode::kInvalidArgument,
        fmt::format("ShardedOptimizer: rank {} has only its share of the state; save_checkpoint() "
                    "saves the whole, or call consolidate() on every rank before save()",
                    kolo::rank()));
}

void ShardedParameters::take_pieces(Optimizer& full, Optimizer& mine) const {
  const torch::NoGradGuard no_grad;
  State& state = here();
  check_ties(full);
  if (const std::string why = state.changed_layout(); !why.empty())
    raise(ErrorCode::kInvalidArgument, "ShardedOptimizer: " + why);
  // Convert everything first: a state that does not fit leaves the optimizer unchanged.
  std::remove_cvref_t<decltype(mine.state())> taken;
  for (const auto& bucket : state.pieces) {
    for (const OwnPiece& piece : bucket) {
      const ShardedParameter& whole = state.parameters[piece.parameter];
      const auto* const from = state_of(full, whole.tensor);
      if (from == nullptr) continue;
      taken[piece.tensor.unsafeGetTensorImpl()] = changed(**from, [&](const torch::Tensor& tensor) {
        if (tensor.sizes() != whole.layout.sizes()) {
          raise(ErrorCode::kMismatch,
                fmt::format("ShardedOptimizer: the state of '{}' was saved for the shape [{}], "
                            "but the parameter's is [{}]; load it into the module that was "
                            "saved",
                            whole.name, fmt::join(tensor.sizes(), ", "),
                            fmt::join(whole.layout.sizes(), ", ")));
        }
        const torch::Tensor ordered = whole.layout.flat_of(tensor.to(whole.tensor.device()));
        return ordered.narrow(0, piece.begin, piece.size).clone();
      });
    }
  }
  std::vector<torch::Tensor> all;
  for (const ShardedParameter& parameter : state.parameters) {
    const auto* const whole = state_of(full, parameter.tensor);
    if (whole == nullptr) continue;
    for (const torch::Tensor* const tensor : tensors_of(**whole))
      if (tensor->defined()) all.push_back(*tensor);
  }
  state.loaded = fingerprint_of(all) >> 8;
  copy_options(full.param_groups(), mine);
  std::swap(mine.state(), taken);
}

}  // namespace kolo
