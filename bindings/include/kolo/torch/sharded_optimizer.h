// ShardedOptimizer: any LibTorch optimizer but LBFGS, with its state split evenly over the ranks.
// With n ranks, AdamW's moments take 1/n of the memory. (ZeRO stage 1: Rajbhandari et al., "ZeRO:
// Memory Optimizations Toward Training Trillion Parameter Models", SC 2020; PyTorch has it as
// ZeroRedundancyOptimizer.)
//
//   kolo::ShardedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-3),
//                                    network->named_parameters());
//   optimizer.zero_grad();
//   torch::mse_loss(network->forward(input), target).backward();
//   optimizer.step();
//
// Rules:
// - It IS the optimizer that it was made from, on this rank's pieces of the parameters. So
//   schedulers and options work as usual.
// - step() reduces the gradients so that each rank gets the sum of its pieces (reducescatter),
//   steps on the pieces, and sends the new values to all (allgather). Results equal those of
//   DistributedOptimizer, up to the order of summation.
// - Backward does not communicate. Gradients add up on this rank until step(), which leaves them
//   unchanged. Reduced gradients are in the pieces, which param_groups() lists.
// - With DistributedDataParallel, made before or after this, set gradients_are_reduced. Without it
//   step(), or the constructor, throws kInvalidArgument on all ranks, with the parameter.
// - Checkpoints: save_checkpoint() and load_checkpoint() accept it like any other optimizer. They
//   save the whole state in the format of the plain optimizer, so any number of ranks, and the
//   plain optimizer, can load it.
// - elastic::run() takes it to worlds of other ranks: elastic.h has what it keeps for that.
// - One thread at a time, in the same way on all ranks.
//
// Steps:
// - Gradients of different steps never meet. zero_grad() and step() count steps, as in
//   DistributedOptimizer. step() throws kMismatch on all ranks if one has skipped a batch. With
//   gradients_are_reduced, this ends communication on all ranks.
// - A parameter without a gradient on this rank takes part with zeros. If no rank has one, the
//   optimizer skips the parameter. A sparse gradient on any rank is kInvalidArgument on all, with
//   the rank.
// - Each step compares the options of the groups, such as the learning rate, and the scale of a
//   GradScaler. A difference throws kMismatch from step() or synchronize() on all ranks, with the
//   value's name, the ranks and both values. The state itself belongs to each rank and is not
//   compared, so load it on all ranks.
// - A step may fail after it has begun to change parameters, through an exception of the optimizer
//   or a rank that does not come in time. This ends communication on all ranks (kAborted).
//   Parameters may then be of two steps, so resume from a checkpoint.
//
// Parameters:
// - Parameters are split by elements, in buckets of `bucket_cap_mb`, so that shares differ by at
//   most one element a bucket. So the optimizer must treat each element separately, as all of
//   LibTorch's optimizers without a closure do.
// - A parameter may get other memory later (to(channels_last), torch::load(), set_data()), with
//   other strides, on all ranks or on one. The state belongs to elements by their index. A step
//   then copies this rank's pieces. A module may be converted or moved as a whole, on all ranks.
// - A parameter with other sizes than at construction, and two parameters in one memory, are
//   kInvalidArgument on all ranks, with the rank. Make a new ShardedOptimizer.
// - Your own optimizer's constructor, from groups and options, sets its members anew. Set again
//   what differs.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/distributed_optimizer.h>
#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/sharded_parameters.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace kolo {

namespace detail {
torch::optim::AdamOptions defaults_of(const torch::optim::Adam*);
torch::optim::AdamWOptions defaults_of(const torch::optim::AdamW*);
torch::optim::SGDOptions defaults_of(const torch::optim::SGD*);
torch::optim::RMSpropOptions defaults_of(const torch::optim::RMSprop*);
torch::optim::AdagradOptions defaults_of(const torch::optim::Adagrad*);
torch::optim::LBFGSOptions defaults_of(const torch::optim::LBFGS*);
}  // namespace detail

/// Type of the options with which O is made, O(groups, options). Specialise it for an optimizer
/// that derives from none of LibTorch's.
template <class O>
struct OptimizerDefaults {
  using Type = decltype(detail::defaults_of(static_cast<const O*>(nullptr)));
};

template <class O>
class ShardedOptimizer : public O, public ShardedState, public ReducingOptimizer {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, O>, "O is one of LibTorch's optimizers");
  static_assert(!std::is_abstract_v<O>,
                "O is an optimizer's own type, such as torch::optim::SGD, not the base class");
  using Defaults = typename OptimizerDefaults<O>::Type;

 public:
  /// Takes over the optimizer, which must be new. Collective over the process set.
  /// - Throws kUnsupported for LBFGS.
  /// - Throws kInvalidArgument on every rank, with the number of a rank that found it, for an
  ///   optimizer that has taken steps, a parameter that is not in `named_parameters` or twice in
  ///   the optimizer, a name of two parameters, and options that do not fit.
  /// - Throws kMismatch on every rank, with the option or parameter in which the ranks differ.
  /// - Throws kInvalidArgument only on this rank if it is not in the process set.
  /// - A weight that modules share may have several names; the first counts.
  ShardedOptimizer(O&& optimizer, const NamedTensors& named_parameters,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(std::make_unique<ShardedParameters>(optimizer, named_parameters, options),
                         static_cast<const Defaults&>(std::as_const(optimizer).defaults())) {
    optimizer.param_groups().clear();  // the state of a moved-from optimizer
  }
  ShardedOptimizer(O&& optimizer,
                   const torch::OrderedDict<std::string, torch::Tensor>& named_parameters,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(std::move(optimizer), NamedTensors(named_parameters.pairs()), options) {}
  /// Deleted: the original optimizer would step on its own groups. Move it in.
  ShardedOptimizer(O& optimizer, const NamedTensors&, const ShardedOptimizerOptions& = {}) = delete;
  ShardedOptimizer(O& optimizer, const torch::OrderedDict<std::string, torch::Tensor>&,
                   const ShardedOptimizerOptions& = {}) = delete;

  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    torch::Tensor loss;
    if (closure != nullptr) {
      const torch::AutoGradMode grad_mode(true);
      loss = closure();
    }
    full_ = nullptr;
    take_added_groups();
    shards().step([this] { O::step(nullptr); });
    return loss;
  }

  /// Clears the gradients of the parameters and of this rank's pieces. Call this one, or the
  /// module's. zero_grad() through a reference to torch::optim::Optimizer clears the pieces only,
  /// so gradients would add up over steps; the next step then warns.
  void zero_grad(bool set_to_none = true) { shards().zero_grad(*this, set_to_none); }

  /// Collective: all ranks add the same group, with parameters "group<i>.parameter<j>". If one rank
  /// refuses it, all throw. The next collective call adopts a group that was added through
  /// torch::optim::Optimizer.
  void add_param_group(const torch::optim::OptimizerParamGroup& group) {
    take_added_groups();
    full_ = nullptr;
    O::add_param_group(shards().add_group(group, this->defaults()));
  }

  /// Reduces the gradients into the pieces, to look at them or change them before step().
  void synchronize() override {
    take_added_groups();
    shards().synchronize();
  }
  /// Call it after synchronize(): the next step() does not synchronize again. It does so
  /// nevertheless if a rank has other gradients by then, so gradients of a skipped step are not
  /// used in a later one.
  void skip_synchronize() override { shards().skip_next(); }
  /// False: each rank has the gradients of its pieces.
  bool same_gradients_on_every_rank() const override { return false; }
  ProcessSet process_set() const override { return shards().process_set(); }
  /// Scales the reduced gradients so that their norm over all parameters is at most `max_norm`. It
  /// first calls synchronize(), unless skip_synchronize() was called for these gradients. The next
  /// step() does not synchronize again. Returns the norm before scaling, the same on every rank.
  /// The parameters' own gradients stay unchanged, except this rank's pieces if gradients were
  /// already reduced. So look at the gradients in param_groups() afterwards.
  double clip_grad_norm(double max_norm, double norm_type = 2.0) {
    take_added_groups();
    return shards().clip_grad_norm(max_norm, norm_type);
  }

  /// Bytes of optimizer state on this rank.
  std::size_t state_bytes() const { return kolo::state_bytes(*this); }

  void consolidate(int root = 0) override {
    take_added_groups();
    full_ = shards().consolidate(
        *this, root, [this](const Groups& groups) { return make(groups, *this); },
        [this](torch::serialize::OutputArchive& archive) { O::save(archive); });
  }

  /// Writes the state that consolidate() brought here. Throws kInvalidArgument without a
  /// consolidate() since the last step, load() or new group.
  void save(torch::serialize::OutputArchive& archive) const override {
    shards().check_consolidated(full_ != nullptr);
    full_->save(archive);
  }

  std::vector<torch::Tensor> whole_parameters() const override {
    return shards().whole_parameters();
  }

  std::uint32_t loaded_state() const override { return shards().loaded_state(); }
  void set_loaded_state(std::uint32_t fingerprint) override {
    shards().set_loaded_state(fingerprint);
  }

  void take_added_groups() override {
    if (shards().take_added_groups(*this, this->defaults())) full_ = nullptr;
  }

  /// Takes this rank's pieces of a whole state, as save() and the plain optimizer write it.
  /// Collective only if there are groups to adopt.
  void load(torch::serialize::InputArchive& archive) override {
    take_added_groups();
    const std::unique_ptr<torch::optim::Optimizer> full = make(shards().whole_groups(*this), *this);
    full->state().clear();
    full->load(archive);
    full_ = nullptr;
    shards().take_pieces(*full, *this);
  }

  /// Drops this rank's part of the state. elastic::run() has a copy; other programs consolidate()
  /// and save the state before, and load it in the next world.
  void leave_world() override {
    shards().leave_world();
    full_ = nullptr;
    this->state().clear();
  }
  void enter_world() override {
    const Groups groups = shards().enter_world(*this);
    const std::unique_ptr<torch::optim::Optimizer> fresh = make(groups, *this);
    for (std::size_t g = 0; g < groups.size(); ++g)
      this->param_groups()[g].params() = groups[g].params();
    std::swap(this->state(), fresh->state());
  }

  std::int64_t part_bytes() override { return shards().part_bytes(*this); }
  std::byte* save_part(std::byte* to) override { return shards().save_part(*this, to); }
  std::int64_t load_part(const std::byte* from, std::int64_t bytes, int rank, int size) override {
    return shards().load_part(*this, from, bytes, rank, size);
  }

 private:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  ShardedParameters& shards() const {
    if (shards_ == nullptr) ShardedParameters::refuse_moved();
    return *shards_;
  }

  ShardedOptimizer(std::unique_ptr<ShardedParameters> shards, const Defaults& defaults)
      : O(shards->groups(), defaults), shards_(std::move(shards)) {
    copy_options(shards_->groups(), *this);
  }

  /// Makes a plain optimizer on `groups`, with their options.
  static std::unique_ptr<torch::optim::Optimizer> make(const Groups& groups,
                                                       const torch::optim::Optimizer& from) {
    auto plain = std::make_unique<O>(groups, static_cast<const Defaults&>(from.defaults()));
    copy_options(groups, *plain);
    return plain;
  }

  std::unique_ptr<ShardedParameters> shards_;
  std::unique_ptr<torch::optim::Optimizer> full_;  ///< result of the last consolidate() on its root
};

}  // namespace kolo
