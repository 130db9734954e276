// The state of ShardedParameters, and the checks of its arguments. Private to bindings/torch; the
// training loop's thread.
#pragma once

#include "bindings/torch/gradients/round.h"
#include "bindings/torch/gradients/shard_layout.h"

#include <kolo/torch/sharded_parameters.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// A piece of this rank, with the optimizer's tensor.
struct OwnPiece : ShardPiece {
  torch::Tensor tensor;
};

/// Tells a gradient that synchronize() took from a later one; keeps none of its memory.
struct TakenGradient {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  Weak tensor;
  /// Detects a backward that adds to the same tensor. Absent if pieces share its memory: they
  /// already contain what was added, and changes of the pieces count, too.
  std::optional<std::int64_t> version;

  /// Whether `gradient` is the one taken, and has been written to since.
  bool was_written(const torch::Tensor& gradient) const {
    return gradient.defined() && version &&
           gradient.unsafeGetTensorImpl() == tensor._unsafe_get_target() &&
           gradient._version() != *version;
  }
};

/// Parameters that travel together, as indices into their list.
using Together = std::vector<std::vector<std::size_t>>;

struct ShardedParameters::State {
  /// Throws before init(), and on this rank alone if it is not in the process set.
  explicit State(const ShardedOptimizerOptions& options);

  const ShardedOptimizerOptions options;
  Round round;     ///< checks that init() was called, before rank and size need it
  const int rank;  ///< rank in the process set
  const int size;
  std::vector<ShardedParameter> parameters;
  std::vector<ShardBucket> buckets;
  std::vector<std::vector<OwnPiece>> pieces;  ///< by bucket
  Groups groups;                              ///< groups of the pieces' tensors
  std::vector<bool> present;  ///< a rank had a gradient of the parameter at the last synchronize()
  std::vector<TakenGradient> taken;  ///< at the last synchronize(), by parameter
  std::vector<const void*> memory;   ///< addresses of the parameters when overlaps were last
                                     ///< checked
  /// Fingerprint of the whole state that was loaded last, of 24 bits; 0: none, or an empty one.
  std::uint32_t loaded = 0;
  bool skip = false;  ///< the next step does not synchronize if `taken` is still
                      ///< current

  /// Assigns the parameters from `first` on to buckets; each list of `together` gets buckets of its
  /// own.
  void add_buckets(std::size_t first, const Together& together);
  std::vector<std::string> names_in(std::size_t bucket) const;
  /// Makes this rank's pieces of the buckets from `first_bucket` on, and the missing groups.
  void cut(std::size_t first_bucket, std::size_t group_count);
  /// The first parameter that differs from what the ranks agreed on: in sizes, or in type or device
  /// from the rest of its bucket. Empty if none does.
  std::string changed_layout();
  /// Why this rank cannot take part in a step; empty if it can.
  std::string refusal();
  /// For a rank that has whole parameters: copies the piece's values to a parameter whose memory is
  /// not the piece's.
  void put_back_pieces();
  /// Begins to sum a bucket's gradients; a rank that `refuses` sends zeros.
  TensorWork reduce_bucket(std::size_t bucket, const std::string& operation, bool refuses) const;
  /// Gives the pieces of a bucket this rank's share of the sum. `ranks`: number of ranks with a
  /// gradient, by parameter.
  void take_gradients(std::size_t bucket, const torch::Tensor& mine,
                      const std::vector<std::int32_t>& ranks) const;
  /// Takes the pieces' gradients from this rank's own gradients.
  void take_own_gradients();
  void remember_gradients();
  /// Whether a gradient differs from the one taken. A cleared gradient does not count.
  bool has_new_gradients() const;
  /// Whether taken gradients have been added to although the pieces' gradients were cleared. This
  /// happens with torch::optim::Optimizer's zero_grad(), which does not reach the parameters.
  bool was_half_cleared() const;
  /// `skip`, unless a rank has new gradients. Collective if `skip`.
  bool may_skip();
  /// Returns the bytes of every rank of the set, by rank in it, at world rank `root`; nothing
  /// elsewhere.
  std::vector<std::string> gather_bytes(const std::string& bytes, int root) const;
  /// Collective: throws the first rank's failure, if any, as kInvalidArgument on all ranks of the
  /// set.
  void throw_together(const std::string& failure) const;
};

/// What stays of the state between two worlds.
struct ShardedParameters::Left {
  ShardedOptimizerOptions options;
  std::vector<ShardedParameter> parameters;
  std::vector<ShardBucket> buckets;
};

/// Throws as ShardedOptimizer's constructor does.
void check_sharded(const torch::optim::Optimizer& optimizer,
                   const ShardedOptimizerOptions& options);
/// Lists the optimizer's parameters. Throws as ShardedOptimizer's constructor does.
std::vector<ShardedParameter> list_parameters(const torch::optim::Optimizer& optimizer,
                                              const NamedTensors& named);
/// Throws kInvalidArgument with both names if two parameters are one tensor or overlap in memory.
void check_distinct(const std::vector<ShardedParameter>& parameters);
/// Names two parameters that overlap in memory, with a remedy; empty if none do. Different ranks
/// would step on the overlapping elements.
std::string overlap_in(const std::vector<ShardedParameter>& parameters);
/// Why this optimizer must not reduce the parameter's gradient: another reducer does, for example a
/// DistributedDataParallel that was made later. Empty if none does.
std::string owned_by_another(const ShardedParameter& parameter,
                             const ShardedOptimizerOptions& options);
/// What must be the same on all ranks, for agree(). Throws as ShardedOptimizer's constructor does.
std::vector<std::string> lines_of(const std::vector<ShardedParameter>& parameters,
                                  const Together& together, const ShardedOptimizerOptions& options);

}  // namespace kolo
