// ShardedOptimizer: any LibTorch optimizer but LBFGS, of whose state each rank keeps an equal
// share: with n ranks, AdamW's moments take 1/n of the memory. It IS the optimizer that it was made
// from, on this rank's pieces of the parameters, so schedulers and options work as ever. (ZeRO
// stage 1: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", SC 2020; PyTorch has it as ZeroRedundancyOptimizer.)
//
//   kolo::ShardedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-3),
//                                    network->named_parameters());
//   optimizer.zero_grad();
//   torch::mse_loss(network->forward(input), target).backward();
//   optimizer.step();
//
// What is defined:
// - step() reduces the gradients so that each rank gets the sum of its pieces (reducescatter),
//   makes the step on them, and sends the new values to all (allgather). Results are those of
//   DistributedOptimizer, up to the order of summation.
// - Gradients of different steps never meet: counted by zero_grad() and step(), as
//   DistributedOptimizer does it. step() throws kMismatch on all ranks where one has left a batch
//   out. With gradients_are_reduced that ends communication on all ranks.
// - Parameters are split by elements, in stretches of `bucket_cap_mb`, so that shares differ by one
//   element a stretch at most. So the optimizer must treat each element for itself, as all of
//   LibTorch's do that have no closure.
// - Backward says nothing to other ranks: gradients add up on this rank until step(), which leaves
//   them as they are. Reduced ones are in the pieces, which param_groups() lists.
// - Members that an optimizer of one's own has besides its options are here as its constructor from
//   groups and options leaves them: set them again.
// - With DistributedDataParallel, made before or after this, set gradients_are_reduced: without it
//   step(), or the constructor, throws kInvalidArgument on all ranks, with the parameter.
// - A parameter without a gradient on this rank takes part with zeros, without one on any rank the
//   optimizer skips it. A sparse gradient of any rank is kInvalidArgument on all, with the rank.
// - A parameter may get other memory later (to(channels_last), torch::load(), set_data()), with
//   other strides, on all ranks or on one: the state belongs to elements by their index. A step
//   then copies this rank's pieces. A module may be converted or moved as a whole, on all ranks.
// - A parameter of other sizes than at the construction, and two that lie in one memory, are
//   kInvalidArgument on all ranks, with the rank: make a new ShardedOptimizer.
// - Each step compares the options of the groups, such as the learning rate, and the scale of a
//   GradScaler: what differs by rank is kMismatch on all, from step() or synchronize(), with the
//   value's name, the ranks and both values. The state itself is each rank's
//   own and not compared: load it on all ranks.
// - A step that fails once it has begun to change parameters, for an exception of the optimizer's
//   own or a rank that does not come in time, ends communication on all ranks (kAborted):
//   parameters may then be of two steps, so go on from a
//   checkpoint.
// - Checkpoints: save_checkpoint() and load_checkpoint() take it as any other optimizer. What they
//   save is the whole state in the plain optimizer's format, so any number of ranks, and the plain
//   optimizer, can load it.
//
// One thread at a time, on all ranks alike.
#pragma once

#include <kolo/export.h>
#include <kolo/torch/distributed_optimizer.h>
#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/sharded_parameters.h>
#include <torch/torch.h>

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

/// The options with which O is made, O(groups, options). Specialise it for an optimizer that
/// derives from none of LibTorch's.
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
  /// Takes the optimizer over, which must be new. Collective over the process set. Throws
  /// kUnsupported for LBFGS; kInvalidArgument for an optimizer that has taken steps, a parameter
  /// that is not among the named ones or twice in the optimizer, a name of two of them, options
  /// that do not fit, on every rank with the number of one that finds it so; kMismatch on every
  /// rank, with the option or the parameter, if the ranks' differ; and kInvalidArgument on a rank
  /// alone that is not in the process set. A weight that modules share may have several names: the
  /// first counts.
  ShardedOptimizer(O&& optimizer, const NamedTensors& named_parameters,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(std::make_unique<ShardedParameters>(optimizer, named_parameters, options),
                         static_cast<const Defaults&>(std::as_const(optimizer).defaults())) {
    optimizer.param_groups().clear();  // as moving leaves it
  }
  ShardedOptimizer(O&& optimizer,
                   const torch::OrderedDict<std::string, torch::Tensor>& named_parameters,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(std::move(optimizer), NamedTensors(named_parameters.pairs()), options) {}
  /// An optimizer that stays outside would step on its own groups: move it in.
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
    shards_->step([this] { O::step(nullptr); });
    return loss;
  }

  /// Of the parameters, and of this rank's pieces. That of torch::optim::Optimizer, which a
  /// reference to that class calls, is of the pieces alone, so that gradients would add up over
  /// steps, of which the next step warns: clear by this one, or the module's.
  void zero_grad(bool set_to_none = true) { shards_->zero_grad(*this, set_to_none); }

  /// Collective: all ranks add the same group, of parameters "group<i>.parameter<j>". What one
  /// refuses is an error on all. One that was added by that of torch::optim::Optimizer is taken on
  /// by the next collective call.
  void add_param_group(const torch::optim::OptimizerParamGroup& group) {
    take_added_groups();
    full_ = nullptr;
    O::add_param_group(shards_->add_group(group, this->defaults()));
  }

  /// Reduces the gradients into the pieces', to look at them or change them before step().
  void synchronize() override {
    take_added_groups();
    shards_->synchronize();
  }
  /// After synchronize(): the next step() does not do it again, unless a rank has other gradients
  /// by then: those of a step that was left out do not stay for the next that has any.
  void skip_synchronize() override { shards_->skip_next(); }
  /// Each has its pieces'.
  bool same_gradients_on_every_rank() const override { return false; }
  ProcessSet process_set() const override { return shards_->process_set(); }
  /// synchronize(), unless skip_synchronize() was called for these gradients, then scales the
  /// reduced gradients so that their norm over all parameters is at most `max_norm`; the next
  /// step() does not synchronize again. Returns the norm before, the same on every rank. The
  /// parameters' own gradients stay as they are, but for this rank's pieces where gradients were
  /// reduced before: after that, look at those in param_groups().
  double clip_grad_norm(double max_norm, double norm_type = 2.0) {
    take_added_groups();
    return shards_->clip_grad_norm(max_norm, norm_type);
  }

  /// Bytes of optimizer state on this rank.
  std::size_t state_bytes() const { return kolo::state_bytes(*this); }

  void consolidate(int root = 0) override {
    take_added_groups();
    full_ = shards_->consolidate(
        *this, root, [this](const Groups& groups) { return make(groups, *this); },
        [this](torch::serialize::OutputArchive& archive) { O::save(archive); });
  }

  /// Writes what consolidate() brought here. Throws kInvalidArgument without one since the last
  /// step, load() or new group.
  void save(torch::serialize::OutputArchive& archive) const override {
    shards_->check_consolidated(full_ != nullptr);
    full_->save(archive);
  }

  std::vector<torch::Tensor> whole_parameters() const override {
    return shards_->whole_parameters();
  }

  void take_added_groups() override {
    if (shards_->take_added_groups(*this, this->defaults())) full_ = nullptr;
  }

  /// Takes its pieces of a whole state, as save() and the plain optimizer write it. Collective only
  /// if groups have yet to be taken on.
  void load(torch::serialize::InputArchive& archive) override {
    take_added_groups();
    const std::unique_ptr<torch::optim::Optimizer> full = make(shards_->whole_groups(*this), *this);
    full->state().clear();
    full->load(archive);
    full_ = nullptr;
    shards_->take_pieces(*full, *this);
  }

 private:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  ShardedOptimizer(std::unique_ptr<ShardedParameters> shards, const Defaults& defaults)
      : O(shards->groups(), defaults), shards_(std::move(shards)) {
    copy_options(shards_->groups(), *this);
  }

  /// A plain optimizer on `groups`, with the options that they have.
  static std::unique_ptr<torch::optim::Optimizer> make(const Groups& groups,
                                                       const torch::optim::Optimizer& from) {
    auto plain = std::make_unique<O>(groups, static_cast<const Defaults&>(from.defaults()));
    copy_options(groups, *plain);
    return plain;
  }

  std::unique_ptr<ShardedParameters> shards_;
  std::unique_ptr<torch::optim::Optimizer> full_;  ///< where the state was brought together last
};

}  // namespace kolo
