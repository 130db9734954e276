// The part of ShardedOptimizer that does not depend on the optimizer's type: its options, the
// pieces of the parameters, and the exchange of gradients, values and state between ranks. Users
// see the options; ShardedOptimizer drives the rest. One thread at a time, in the same way on all
// ranks.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/distributed_optimizer.h>
#include <kolo/torch/world_member.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kolo {

/// Options of ShardedOptimizer, the same on all ranks.
struct ShardedOptimizerOptions {
  ReduceOp op = ReduceOp::kAverage;  ///< or kSum
  /// As DistributedOptimizerOptions::gradient_predivide_factor.
  double gradient_predivide_factor = 1.0;
  /// Set it if every rank has the same gradients already, as with DistributedDataParallel. Each
  /// rank then takes its pieces of them, and nothing is reduced.
  bool gradients_are_reduced = false;
  /// Parameters travel in buckets of up to this many MiB, two at a time. A step needs that much
  /// additional memory.
  double bucket_cap_mb = 25;
  /// Groups of parameters that travel together instead: one bucket for each group and element type.
  GradientGroups groups = {};
  /// The ranks that share the state, including this rank. Default: all.
  ProcessSet process_set = {};
};

/// An optimizer whose state is spread over ranks. save_checkpoint() recognises such an optimizer by
/// this class:
///
///   if (auto* sharded = dynamic_cast<kolo::ShardedState*>(&optimizer)) {
///     sharded->consolidate(/*root=*/0);  // collective
///     if (kolo::rank() == 0) torch::save(optimizer, path);
///   }
class KOLO_API ShardedState : public WorldMember {
 public:
  /// Collective over the process set. Brings the whole state to `root`, a rank of the world, where
  /// the optimizer can be saved until its next step.
  virtual void consolidate(int root) = 0;
  /// Adopts groups that were added by add_param_group() of torch::optim::Optimizer. Collective over
  /// the process set if there are any.
  virtual void take_added_groups() = 0;
  /// The whole parameters. The optimizer's groups list only pieces of them.
  virtual std::vector<torch::Tensor> whole_parameters() const = 0;
  /// What the next step compares over the ranks: a fingerprint of the whole state that this rank
  /// has loaded. A load that is undone restores it.
  virtual std::uint32_t loaded_state() const = 0;
  virtual void set_loaded_state(std::uint32_t fingerprint) = 0;

  // This rank's part: the values of its pieces and their state, in host memory. elastic::run()
  // keeps copies, and gives all of them to each rank of another world.
  virtual std::int64_t part_bytes() = 0;
  /// Writes part_bytes() bytes, and returns their end.
  virtual std::byte* save_part(std::byte* to) = 0;
  /// Takes what this rank needs of the part that rank `rank` of `size` has saved, and all of its
  /// values. Returns the number of bytes that the part has. Throws kMismatch if it has more than
  /// `bytes`.
  virtual std::int64_t load_part(const std::byte* from, std::int64_t bytes, int rank, int size) = 0;

 protected:
  ShardedState() = default;
  ShardedState(const ShardedState&) = default;
  ShardedState(ShardedState&&) = default;
  ShardedState& operator=(const ShardedState&) = default;
  ShardedState& operator=(ShardedState&&) = default;
};

/// Bytes of the tensors in an optimizer's state. Throws kUnsupported for a state that is not one of
/// LibTorch's.
KOLO_API std::size_t state_bytes(const torch::optim::Optimizer& optimizer);

/// Gives the i-th group of `optimizer` the options of the i-th of `groups`. The optimizer's
/// constructor does not: it treats an option that equals the type's default as unset.
KOLO_API void copy_options(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                           torch::optim::Optimizer& optimizer);

/// The parameters of one ShardedOptimizer, which makes these calls:
///
///   kolo::ShardedParameters shards(adam, network->named_parameters().pairs(), {});
///   torch::optim::AdamW mine(shards.groups(), torch::optim::AdamWOptions(1e-3));
///   kolo::copy_options(shards.groups(), mine);
///   loss_of(*network).backward();
///   shards.step([&] { mine.step(); });
class KOLO_API ShardedParameters {
 public:
  using Group = torch::optim::OptimizerParamGroup;
  using Groups = std::vector<Group>;
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const Groups&)>;
  using Save = std::function<void(torch::serialize::OutputArchive&)>;

  /// Behaves as the constructor of ShardedOptimizer, with the groups of `optimizer`.
  ShardedParameters(const torch::optim::Optimizer& optimizer, const NamedTensors& named,
                    const ShardedOptimizerOptions& options);
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  /// Throws kInvalidArgument: the optimizer was moved from.
  [[noreturn]] static void refuse_moved();
  /// The optimizer's groups, with this rank's pieces.
  const Groups& groups() const;
  ProcessSet process_set() const;
  std::vector<torch::Tensor> whole_parameters() const;
  std::uint32_t loaded_state() const;
  void set_loaded_state(std::uint32_t fingerprint);
  /// Collective: adopts one more group and returns its pieces.
  Group add_group(const Group& group, const torch::optim::OptimizerOptions& defaults);
  /// Adopts the groups of `mine` that add_group() has not adopted, and replaces their parameters by
  /// the pieces. Returns whether there were any; collective if so. Throws kInvalidArgument, with
  /// the group, if another group has more or fewer tensors than pieces.
  bool take_added_groups(torch::optim::Optimizer& mine,
                         const torch::optim::OptimizerOptions& defaults);

  void synchronize();
  void skip_next();
  /// Reduces the gradients, unless that is done. Then `step_on_pieces` changes this rank's pieces,
  /// which lie in the parameters' memory, and all ranks exchange the new values.
  void step(const std::function<void()>& step_on_pieces);
  /// Also clears groups of `mine` that are not adopted yet.
  void zero_grad(torch::optim::Optimizer& mine, bool set_to_none);
  double clip_grad_norm(double max_norm, double norm_type);

  /// Returns at `root` an optimizer on whole parameters, to be saved, with the state of all ranks
  /// on the CPU; null elsewhere. `make` makes such an optimizer, `save` writes this rank's state.
  /// Throws kInvalidArgument on all ranks of the set if this fails on one.
  std::unique_ptr<torch::optim::Optimizer> consolidate(const torch::optim::Optimizer& mine,
                                                       int root, const Make& make,
                                                       const Save& save);
  /// Throws unless `consolidated`.
  void check_consolidated(bool consolidated) const;
  /// The groups with whole parameters and the present options of `mine`.
  Groups whole_groups(const torch::optim::Optimizer& mine) const;
  /// Copies the options and this rank's pieces of the state from `full`, which has whole_groups().
  void take_pieces(torch::optim::Optimizer& full, torch::optim::Optimizer& mine) const;

  /// As WorldMember's.
  void leave_world();
  /// Returns the groups with this rank's pieces and the present options of `mine`.
  Groups enter_world(const torch::optim::Optimizer& mine);
  /// As ShardedState's.
  std::int64_t part_bytes(torch::optim::Optimizer& mine);
  std::byte* save_part(torch::optim::Optimizer& mine, std::byte* to);
  std::int64_t load_part(torch::optim::Optimizer& mine, const std::byte* from, std::int64_t bytes,
                         int rank, int size);

 private:
  void prepare_pieces();
  void exchange_values();
  /// Makes a whole optimizer from the saved states of all ranks.
  std::unique_ptr<torch::optim::Optimizer> put_together(const std::vector<std::string>& all,
                                                        const torch::optim::Optimizer& mine,
                                                        const Make& make) const;

  struct State;
  struct Left;
  /// Throws kInvalidArgument between two worlds.
  State& here() const;

  std::unique_ptr<State> state_;  ///< null between two worlds
  std::unique_ptr<Left> left_;    ///< what the next state is made of, between two worlds
};

}  // namespace kolo
