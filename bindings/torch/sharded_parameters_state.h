// What ShardedParameters holds, and the checks of what it is made from. Private to bindings/torch;
// the training loop's thread.
#pragma once

#include "bindings/torch/name_number.h"
#include "bindings/torch/shard_layout.h"
#include "bindings/torch/state_comparison.h"
#include "bindings/torch/step_count.h"

#include <kolo/torch/sharded_parameters.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// Tells a gradient that synchronize() took from a later one; keeps none of its memory.
struct TakenGradient {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  Weak tensor;
  /// Backward may add to the same tensor. Absent where pieces share its memory: they have what was
  /// added, and what changes them counts, too.
  std::optional<std::int64_t> version;
};

/// Which parameters travel together, as places in their list.
using Together = std::vector<std::vector<std::size_t>>;

struct ShardedParameters::State {
  ShardedOptimizerOptions options;
  int rank = 0;  ///< in the process set
  int size = 1;
  NameNumber number;
  std::string prefix;                         ///< of the operations' names
  std::optional<StateComparison> comparison;  ///< what is told besides gradients
  std::vector<ShardedParameter> parameters;
  std::vector<ShardBucket> buckets;
  std::vector<std::vector<ShardPiece>> pieces;            ///< this rank's, by bucket
  std::vector<std::vector<torch::Tensor>> piece_tensors;  ///< the optimizer's, in the same order
  Groups groups;                                          ///< of these
  std::vector<bool> present;  ///< a rank had a gradient of the parameter at the last synchronize()
  std::vector<TakenGradient> taken;  ///< at the last synchronize(), by parameter
  std::vector<const void*> memory;   ///< of the parameters, when it was last looked for overlaps
  bool skip = false;                 ///< the next step does not synchronize, if `taken` still are
  StepCount step;

  /// Deals the parameters from `first` on into buckets: those of a list into ones of their own.
  void add_buckets(std::size_t first, const Together& together);
  /// Makes this rank's pieces of the buckets from `first_bucket` on, and the missing groups.
  void cut(std::size_t first_bucket, std::size_t group_count);
  /// Why the parameters are not what the ranks have agreed on, or nothing: the first that has other
  /// sizes, or another type or device than the rest of its bucket.
  std::string changed_layout();
  /// Why this rank cannot take part in a step, or nothing.
  std::string refusal();
  /// A parameter whose memory its piece is not, on a rank that has it whole, gets the piece's
  /// values.
  void put_back_pieces();
  /// The pieces' gradients are parts of this rank's own.
  void take_own_gradients(std::size_t bucket);
  void remember_gradients();
  /// A gradient here is not the one that was taken. One that was cleared does not count.
  bool has_new_gradients() const;
  /// Gradients that were taken have been added to since, though the pieces' were cleared: by the
  /// zero_grad() of torch::optim::Optimizer, which does not reach the parameters.
  bool was_half_cleared() const;
  /// `skip`, unless a rank has new gradients. Collective if `skip`.
  bool may_skip();
  /// Bytes of every rank of the set, by rank in it, at `root`, a rank of the world; none elsewhere.
  std::vector<std::string> gather_bytes(const std::string& bytes, int root) const;
  /// Collective: kInvalidArgument on all ranks of the set if any has a failure, with the first one.
  void throw_together(const std::string& failure) const;
};

/// Collective: every rank's text, by rank in the set.
std::vector<std::string> allgather_texts(const std::string& text, const std::string& name,
                                         const ProcessSet& set);

/// Throws kInvalidArgument if this rank is not in `set`, hence awaited by none of it.
void check_member(const ProcessSet& set);
/// Throws as ShardedOptimizer's constructor does.
void check_sharded(const torch::optim::Optimizer& optimizer,
                   const ShardedOptimizerOptions& options);
/// The optimizer's parameters. Throws as ShardedOptimizer's constructor does.
std::vector<ShardedParameter> list_parameters(const torch::optim::Optimizer& optimizer,
                                              const NamedTensors& named);
Together groups_of(const std::vector<ShardedParameter>& parameters, const GradientGroups& groups);
/// Throws kInvalidArgument, with both names, if two of them are one tensor, or lie in one memory.
void check_distinct(const std::vector<ShardedParameter>& parameters);
/// Which two of them lie in one memory, and what to do, or nothing: each would be stepped on by
/// another rank.
std::string overlap_in(const std::vector<ShardedParameter>& parameters);
/// Why this must not reduce its gradient, or nothing: somebody else does, as a
/// DistributedDataParallel that was made later may.
std::string owned_by_another(const ShardedParameter& parameter,
                             const ShardedOptimizerOptions& options);
/// Collective. Throws on every rank, with the number of one, what `check` throws on that one, which
/// may make `parameters` and `together`; else as ShardedOptimizer's constructor does.
void check_parameters(const std::vector<ShardedParameter>& parameters, const Together& together,
                      const ShardedOptimizerOptions& options, const std::string& prefix,
                      const std::function<void()>& check);

}  // namespace kolo
