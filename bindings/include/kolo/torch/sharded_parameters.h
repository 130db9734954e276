// The part of ShardedOptimizer that does not depend on the optimizer's type: its options, the
// parameters in pieces, and the way of gradients, values and state between ranks. Users meet the
// options; the rest is driven by ShardedOptimizer. One thread at a time, on all ranks alike.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/distributed_optimizer.h>
#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kolo {

/// On all ranks alike.
struct ShardedOptimizerOptions {
  ReduceOp op = ReduceOp::kAverage;  ///< or kSum
  /// As DistributedOptimizerOptions::gradient_predivide_factor.
  double gradient_predivide_factor = 1.0;
  /// Every rank has the same gradients already, as with DistributedDataParallel: each takes its
  /// pieces of them, and nothing is reduced.
  bool gradients_are_reduced = false;
  /// Parameters travel in stretches of up to this many MiB, two at a time, which is the memory that
  /// a step takes besides.
  double bucket_cap_mb = 25;
  /// Parameters that travel together in place of that: a stretch for each group and element type.
  GradientGroups groups = {};
  /// The ranks that share the state; this rank is one of them. Default: all.
  ProcessSet process_set = {};
};

/// An optimizer whose state is spread over ranks; save_checkpoint() finds it by this.
class KOLO_API ShardedState {
 public:
  virtual ~ShardedState() = default;
  /// Collective over the process set: brings the whole state to `root`, a rank of the world, so
  /// that the optimizer can be saved there until its next step.
  virtual void consolidate(int root) = 0;
  /// Collective over the process set if there are any: takes on groups that were added by
  /// torch::optim::Optimizer's add_param_group().
  virtual void take_added_groups() = 0;
  /// The parameters themselves, of whose pieces the optimizer's groups are.
  virtual std::vector<torch::Tensor> whole_parameters() const = 0;

 protected:
  ShardedState() = default;
  ShardedState(const ShardedState&) = default;
  ShardedState(ShardedState&&) = default;
  ShardedState& operator=(const ShardedState&) = default;
  ShardedState& operator=(ShardedState&&) = default;
};

/// Bytes of the tensors in an optimizer's state. Throws kUnsupported for a state that is none of
/// LibTorch's.
KOLO_API std::size_t state_bytes(const torch::optim::Optimizer& optimizer);

/// Gives the i-th group of `optimizer` the options of the i-th of `groups`. (Its constructor takes
/// those that equal a default of the type for unset.)
KOLO_API void copy_options(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                           torch::optim::Optimizer& optimizer);

class KOLO_API ShardedParameters {
 public:
  using Group = torch::optim::OptimizerParamGroup;
  using Groups = std::vector<Group>;
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(const Groups&)>;
  using Save = std::function<void(torch::serialize::OutputArchive&)>;

  /// As ShardedOptimizer's constructor, of whose optimizer it takes the groups.
  ShardedParameters(const torch::optim::Optimizer& optimizer, const NamedTensors& named,
                    const ShardedOptimizerOptions& options);
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  /// The optimizer's groups, of this rank's pieces.
  const Groups& groups() const;
  ProcessSet process_set() const;
  std::vector<torch::Tensor> whole_parameters() const;
  /// Collective: takes on another one; its pieces.
  Group add_group(const Group& group, const torch::optim::OptimizerOptions& defaults);
  /// Collective if there are any: those of `mine` that add_group() has not taken on, and puts their
  /// pieces in their place; whether there were any. Throws kInvalidArgument, with the group, if
  /// another one has more or fewer tensors than it has pieces.
  bool take_added_groups(torch::optim::Optimizer& mine,
                         const torch::optim::OptimizerOptions& defaults);

  void synchronize();
  void skip_next();
  /// Reduces, unless that is done, lets `step_on_pieces` change this rank's, which are the
  /// parameters' memory, and gives all ranks what has changed.
  void step(const std::function<void()>& step_on_pieces);
  /// Also of groups of `mine` that have yet to be taken on.
  void zero_grad(torch::optim::Optimizer& mine, bool set_to_none);
  double clip_grad_norm(double max_norm, double norm_type);

  /// At `root` an optimizer on whole parameters, to be saved, with the state of all ranks, which is
  /// on the CPU; null elsewhere. `make` makes one, `save` writes this rank's. Throws
  /// kInvalidArgument on all ranks of the set where that fails on one.
  std::unique_ptr<torch::optim::Optimizer> consolidate(const torch::optim::Optimizer& mine,
                                                       int root, const Make& make,
                                                       const Save& save);
  /// Throws unless `consolidated`.
  void check_consolidated(bool consolidated) const;
  /// The groups with whole parameters and the present options of `mine`.
  Groups whole_groups(const torch::optim::Optimizer& mine) const;
  /// Options and this rank's pieces of the state of `full`, which has whole_groups().
  void take_pieces(torch::optim::Optimizer& full, torch::optim::Optimizer& mine) const;

 private:
  void prepare_pieces();
  void exchange_values();
  /// A whole optimizer from what each rank has saved.
  std::unique_ptr<torch::optim::Optimizer> put_together(const std::vector<std::string>& all,
                                                        const torch::optim::Optimizer& mine,
                                                        const Make& make) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo
