// Takes a sharded optimizer to another world: its parts in host memory, and its pieces among other
// ranks. The training loop's thread.
#include "bindings/torch/gradients/agreement.h"
#include "bindings/torch/gradients/gradient_groups.h"
#include "bindings/torch/gradients/sharded_parameters_state.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

namespace kolo {
namespace {

using torch::optim::Optimizer;

constexpr std::int64_t kAlignment = 16;
constexpr std::size_t kMostTensors = 3;
constexpr std::int64_t kUndefined = -1;

/// In a part, each piece has a header, its values and the tensors of its state.
struct PieceHeader {
  std::int64_t kind = 0;  ///< StateKind
  std::int64_t step = 0;
  std::int64_t values = 0;  ///< torch::ScalarType
  std::int64_t tensors[kMostTensors] = {kUndefined, kUndefined, kUndefined};
};
static_assert(sizeof(PieceHeader) % kAlignment == 0);

std::int64_t padded_bytes(std::int64_t type, std::int64_t elements) {
  if (type == kUndefined) return 0;
  const auto width = c10::elementSize(static_cast<torch::ScalarType>(type));
  const std::int64_t bytes = elements * static_cast<std::int64_t>(width);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t bytes_after(const PieceHeader& header, std::int64_t elements) {
  std::int64_t bytes = padded_bytes(header.values, elements);
  for (const std::int64_t type : header.tensors) bytes += padded_bytes(type, elements);
  return bytes;
}

/// The next elements of a part, which lie in its memory.
torch::Tensor take(std::byte*& at, std::int64_t type, std::int64_t elements) {
  const auto tensor = torch::from_blob(at, {elements}, static_cast<torch::ScalarType>(type));
  at += padded_bytes(type, elements);
  return tensor;
}

/// Throws kUnsupported for a state that is not LibTorch's.
KnownState known(Optimizer& mine, const torch::Tensor& piece) {
  const auto it = mine.state().find(piece.unsafeGetTensorImpl());
  if (it == mine.state().end()) return {};
  if (auto state = known_state_of(*it->second)) return *std::move(state);
  raise(ErrorCode::kUnsupported,
        "ShardedOptimizer: this optimizer's state is none of LibTorch's, so it cannot be taken to "
        "another world; use DistributedOptimizer");
}

PieceHeader header_of(const KnownState& state, torch::ScalarType values) {
  PieceHeader header{.kind = static_cast<std::int64_t>(state.kind),
                     .step = state.step != nullptr ? *state.step : 0,
                     .values = static_cast<std::int64_t>(values)};
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (state.tensors[i]->defined())
      header.tensors[i] = static_cast<std::int64_t>(state.tensors[i]->scalar_type());
  }
  return header;
}

/// Copies to the state of `own` what `theirs`, a piece of another layout, has of its elements. The
/// tensors of that state begin at `at`.
void load_state(Optimizer& mine, const OwnPiece& own, const ShardPiece& theirs,
                const PieceHeader& header, std::byte* at) {
  const std::int64_t begin = std::max(theirs.begin, own.begin);
  const std::int64_t end = std::min(theirs.begin + theirs.size, own.begin + own.size);
  const auto kind = static_cast<StateKind>(header.kind);
  if (begin >= end || kind == StateKind::kNone) return;
  auto& kept = mine.state()[own.tensor.unsafeGetTensorImpl()];
  if (kept == nullptr) kept = new_state(kind);
  const KnownState state = known(mine, own.tensor);
  if (state.step != nullptr) *state.step = header.step;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (header.tensors[i] == kUndefined) continue;
    const torch::Tensor values = take(at, header.tensors[i], theirs.size);
    torch::Tensor& to = *state.tensors[i];
    if (!to.defined()) to = torch::zeros({own.size}, values.options().device(own.tensor.device()));
    to.narrow(0, begin - own.begin, end - begin)
        .copy_(values.narrow(0, begin - theirs.begin, end - begin));
  }
}

}  // namespace

ShardedParameters::State& ShardedParameters::here() const {
  if (state_ != nullptr) return *state_;
  raise(ErrorCode::kInvalidArgument,
        "ShardedOptimizer: its world has ended, and elastic::run() could not take it to the next "
        "one; end the program");
}

void ShardedParameters::leave_world() {
  if (state_ == nullptr) return;
  left_ = std::make_unique<Left>(Left{.options = state_->options,
                                      .parameters = std::move(state_->parameters),
                                      .buckets = std::move(state_->buckets)});
  state_.reset();
}

ShardedParameters::Groups ShardedParameters::enter_world(const Optimizer& mine) {
  auto state = std::make_unique<State>(left_->options);
  agree("ShardedOptimizer", state->round.prefix() + "parameters", left_->options.process_set, [&] {
    NamedTensors listed;
    for (const ShardedParameter& parameter : left_->parameters)
      listed.emplace_back(parameter.name, parameter.tensor);
    return lines_of(left_->parameters,
                    members_of("ShardedOptimizer", left_->options.groups, listed), left_->options);
  });
  state->parameters = left_->parameters;
  state->buckets = left_->buckets;
  std::size_t groups = 0;
  for (const ShardedParameter& parameter : state->parameters)
    groups = std::max(groups, parameter.group + 1);
  state->cut(0, groups);
  for (std::size_t g = 0; g < groups; ++g)
    state->groups[g].set_options(mine.param_groups()[g].options().clone());
  state_ = std::move(state);
  left_.reset();
  return state_->groups;
}

std::int64_t ShardedParameters::part_bytes(Optimizer& mine) {
  State& state = here();
  if (const std::string why = state.changed_layout(); !why.empty())
    raise(ErrorCode::kInvalidArgument, "ShardedOptimizer: " + why);
  std::int64_t bytes = 0;
  for (const auto& bucket : state.pieces) {
    for (const OwnPiece& piece : bucket) {
      const auto header = header_of(known(mine, piece.tensor),
                                    state.parameters[piece.parameter].tensor.scalar_type());
      bytes += static_cast<std::int64_t>(sizeof header) + bytes_after(header, piece.size);
    }
  }
  return bytes;
}

std::byte* ShardedParameters::save_part(Optimizer& mine, std::byte* to) {
  const torch::NoGradGuard no_grad;
  State& state = here();
  for (const auto& bucket : state.pieces) {
    for (const OwnPiece& piece : bucket) {
      const ShardedParameter& parameter = state.parameters[piece.parameter];
      const KnownState kept = known(mine, piece.tensor);
      const PieceHeader header = header_of(kept, parameter.tensor.scalar_type());
      std::memcpy(to, &header, sizeof header);
      to += sizeof header;
      take(to, header.values, piece.size)
          .copy_(parameter.layout.flat_of(parameter.tensor).narrow(0, piece.begin, piece.size));
      for (std::size_t i = 0; i < kept.tensors.size(); ++i) {
        if (header.tensors[i] != kUndefined)
          take(to, header.tensors[i], piece.size).copy_(*kept.tensors[i]);
      }
    }
  }
  return to;
}

std::int64_t ShardedParameters::load_part(Optimizer& mine, const std::byte* from,
                                          std::int64_t bytes, int rank, int size) {
  const torch::NoGradGuard no_grad;
  State& state = here();
  std::byte* at = const_cast<std::byte*>(from);  // for from_blob(); nothing writes there
  const auto check_room = [&](std::int64_t wanted) {
    if (at - from + wanted <= bytes) return;
    raise(
        ErrorCode::kMismatch,
        fmt::format("ShardedOptimizer: the part of rank {} of {} has {} bytes, which does not fit "
                    "these parameters; add no group of parameters within elastic::run()",
                    rank, size, bytes));
  };
  for (std::size_t b = 0; b < state.buckets.size(); ++b) {
    std::map<std::size_t, const OwnPiece*> own;
    for (const OwnPiece& piece : state.pieces[b]) own.emplace(piece.parameter, &piece);
    for (const ShardPiece& theirs : pieces_of(state.buckets[b], state.parameters, rank, size)) {
      PieceHeader header;
      check_room(sizeof header);
      std::memcpy(&header, at, sizeof header);
      at += sizeof header;
      check_room(bytes_after(header, theirs.size));
      const ShardedParameter& parameter = state.parameters[theirs.parameter];
      const torch::Tensor whole = parameter.layout.flat_of(parameter.tensor);
      whole.narrow(0, theirs.begin, theirs.size).copy_(take(at, header.values, theirs.size));
      if (!parameter.layout.orders(parameter.tensor))
        parameter.tensor.detach().copy_(parameter.layout.on(whole));
      const auto piece = own.find(theirs.parameter);
      if (piece != own.end()) load_state(mine, *piece->second, theirs, header, at);
      at += bytes_after(header, theirs.size) - padded_bytes(header.values, theirs.size);
    }
  }
  return at - from;
}

}  // namespace kolo
