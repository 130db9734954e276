// DistributedOptimizer: any LibTorch optimizer whose gradients are averaged over the ranks. It IS
// the optimizer that it was made from (one set of groups, one state), so schedulers, torch::save
// and torch::load, and step(closure) work as ever. Each gradient's all-reduce starts when autograd
// has accumulated it, and so overlaps the rest of backward. (After Horovod's DistributedOptimizer.)
//
// What is defined:
// - backward() returns with the reduced gradients of those parameters that it has reached on all
//   ranks: clip them, look at them, replace them, alike on all ranks; step() takes them as they
//   are. What it has reached on some ranks only stays under way until step() or synchronize(), and
//   is not to be touched before: the step then fails and names the parameter, and what computes
//   with it may fail at once, as torch::nn::utils::clip_grad_norm_() does with "norm(): input dtype
//   should be either floating point or complex. Got Bool instead". clip_grad_norm() is always
//   right.
// - So a rank waits at the end of backward() for those of the others. One that makes none for this
//   optimizer, where others do, goes to step() before it calls another collective, unless it has
//   told set_sample_count(0): then gradients of that step are under way until step().
// - step() waits for all that is under way, then updates. With a closure it does so after each call
//   of it; LBFGS, which decides by the loss, gets the loss reduced as gradients are: the ranks'
//   average, their sum with kSum, weighed with weigh_by_samples.
// - Gradients of different steps never meet. zero_grad() begins a step, as does what follows a
//   step() without one. A rank that leaves a batch out after zero_grad() (an early `continue`) is a
//   step ahead: the next backward() or step() throws kMismatch on all ranks, with their steps. Go
//   on with zero_grad(); all count on from the highest step, so the next ones meet. A batch that a
//   rank leaves out without any call, neither zero_grad() nor step(), cannot be seen. A step that
//   all leave out is no error.
// - After a timeout the ranks that came late get one for the same step, too, and meet the others in
//   the next.
// - A second backward before step() (other losses, retain_graph): the gradients of the passes add
//   up, each reduced over the ranks, as they would in one process; each pass reaches the same
//   parameters on all ranks. One that some make alone, when the others have all their gradients,
//   meets the next step of these: kMismatch on all. With backward_passes_per_step they add up on
//   each rank, and travel with the last of them; until then they are this rank's.
// - A parameter without a gradient on this rank takes part with zeros. Without one on any rank, its
//   gradient stays undefined, so that the optimizer skips it as it would in one process. One that
//   was set by hand where no backward has reached the parameter is reduced by step().
// - Clear gradients by this zero_grad(), on all ranks: it first ends what is under way. Reduced
//   gradients that were cleared by module->zero_grad() are dropped; clearing what is under way is
//   an error that names the parameter.
// - Parameters that were added without this add_param_group(), as by a reference to the base class,
//   are taken on at the next step() or zero_grad(), alike on all ranks.
// - requires_grad may change between steps, on all ranks alike; before zero_grad(), for where all
//   that a backward reaches was thawed after it, step() alone averages.
// - So may sizes and types of parameters, on all ranks alike: each gradient's are agreed on when it
//   travels (kMismatch, with the parameter and both). Strides may differ by rank.
// - Gradients have no graph: a backward() with create_graph is an error that names the parameter.
//   For a penalty of gradients use torch::autograd::grad() with create_graph, and backward() of the
//   loss without.
// - What one rank cannot let travel (such a gradient, a sparse one, another device or type, a
//   compressor that throws, a missing set_sample_count()) is kInvalidArgument on all, with its
//   number and the parameter, from the backward() or step() that waits for that gradient. Other
//   gradients, and other optimizers of the same backward, are done all the same. Go on with
//   zero_grad().
// - So is a backward that an exception ends on some rank when it has some gradients and lacks
//   others, once it calls zero_grad(): the others' step() throws, with that rank.
//
// - Ranks compare what each has of its own, in messages that are sent anyway. Options of the groups
//   (such as the learning rate) and counts of steps: with each step, as zero_grad(), or the step
//   before, has found them. The scale of a GradScaler: with each backward. A difference is
//   kMismatch on all ranks, from backward() or step(), with the value's name, the ranks and both
//   values; go on with zero_grad() once all have the same. Parameters: before the first step, then
//   more and more rarely, at last with each 128th; a difference is a warning, once, of the lowest
//   rank. Nothing is compared while a rank has joined.
// - Parameters may be on the CPU or on this rank's CUDA device; those of one group on one device. A
//   gradient starts after what it is made on, and step()'s stream goes on after the averages.
//
// Used by one thread at a time, like every optimizer; its hooks run on autograd's threads.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/compression.h>
#include <kolo/torch/functions.h>
#include <kolo/torch/reducing_optimizer.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace kolo {

/// Which gradients travel together, all or none of them: nothing (each for itself); a number of
/// groups of even length, into which the parameters are dealt in their order; or lists of
/// parameters, by name or themselves. (Horovod's `groups`.)
using GradientGroups = std::variant<std::monostate, int, std::vector<std::vector<std::string>>,
                                    std::vector<std::vector<torch::Tensor>>>;

struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::kAverage;  ///< or kSum, kAdasum
  /// Passes that add up on this rank before the last of them starts the all-reduce. The sum is not
  /// divided by it. step() before the last pass reduces what is there.
  int backward_passes_per_step = 1;
  /// Averages are divided by this before the sum and by size / this after it: against overflow of
  /// half types over NCCL; kolo's own sums of them are float32. Only with kAverage.
  double gradient_predivide_factor = 1.0;
  /// What travels in place of a gradient; null: itself.
  std::shared_ptr<Compressor> compression = nullptr;
  /// Sparse gradients travel, and stay, dense. Otherwise they are an error on all ranks.
  bool sparse_as_dense = false;
  /// Ranks' gradients are means over batches of unequal size: each counts by the samples that
  /// set_sample_count() has told for the step. Only with kAverage and one pass a step. Gradients
  /// travel multiplied by the samples, over gradient_predivide_factor: that must fit their type.
  bool weigh_by_samples = false;
  /// A group starts when the last of its gradients is ready, and fails as a whole. A member without
  /// a gradient takes part with zeros from step() on, as it does alone. Parameters of no group, and
  /// those of add_param_group(), travel for themselves. On all ranks alike. E.g. `.groups = 2`.
  GradientGroups groups = {};
  /// The ranks over which gradients are reduced; default: all.
  ProcessSet process_set = {};
  /// Gradients that stay, by zero_grad(false), get memory that the ranks of a host share, of
  /// kolo::allocate() (whole pages) or kolo::allocate_on_device(), in place of their own:
  /// all-reduces copy nothing there. They are the same tensors as before. Those that you set
  /// yourself stay where they are, as do compressed ones, those whose memory something else holds,
  /// and all that finds no room. Gradients that zero_grad() lets go are made anew elsewhere:
  /// copying them would cost what it spares.
  bool shared_gradients = true;
};

/// The part of DistributedOptimizer that does not depend on the optimizer's type.
class KOLO_API GradientReducer {
 public:
  /// Every parameter of `groups` must be among `named` (kInvalidArgument tells which is not), of
  /// whose names for it the first is taken; none may be listed twice or be in another
  /// DistributedOptimizer or a DistributedDataParallel. Collective: throws kMismatch on all ranks,
  /// with the first difference, unless they have the same parameters (names, order, types, sizes,
  /// which of them require a gradient). All ranks make their optimizers in the same order: the n-th
  /// calls its tensors "optimizer<n>/<name>".
  GradientReducer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                  const NamedTensors& named, const DistributedOptimizerOptions& options);
  /// Waits for what is under way.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Throws kInvalidArgument where `group`, to be the optimizer's group `index`, lists a parameter
  /// that is in this optimizer already, or twice, or in another one.
  void check_group(std::size_t index, const torch::optim::OptimizerParamGroup& group) const;
  /// Takes on the parameters that are not known yet, as "group<i>.parameter<j>".
  void adopt(const std::vector<torch::optim::OptimizerParamGroup>& groups);
  /// The same where all ranks come to a step: after synchronize() of those that are known.
  void adopt_for_step(const std::vector<torch::optim::OptimizerParamGroup>& groups);
  /// What ranks compare from now on: its options and counts of steps. Between two steps.
  void look_at(const torch::optim::Optimizer& optimizer);
  /// As DistributedOptimizer::set_sample_count.
  void set_sample_count(std::int64_t samples);
  /// Waits for every gradient that is not reduced since the last backward. Throws the first
  /// failure, after all have ended.
  void synchronize();
  /// synchronize(), unless skip_next() was called since the last one. Then a step is made.
  void synchronize_for_step();
  /// The next synchronize_for_step() does nothing.
  void skip_next();
  /// Waits for what is under way and forgets it, before gradients are cleared: `gradients_stay` if
  /// they are zeroed where they are.
  void discard(bool gradients_stay);
  /// Gradients that were submitted and not yet synchronized.
  std::size_t pending() const;
  ProcessSet process_set() const;
  /// Throws kInvalidArgument: the optimizer that had one was moved from.
  [[noreturn]] static void refuse_moved();
  /// The loss of a closure, a scalar, over the ranks, as its gradients were reduced.
  torch::Tensor reduce_loss(const torch::Tensor& loss) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

template <class O>
class DistributedOptimizer : public O, public ReducingOptimizer {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, O>, "O is one of LibTorch's optimizers");
  static_assert(
      !std::is_abstract_v<O>,
      "O is an optimizer's own type, such as torch::optim::SGD, not the base class; for an "
      "optimizer that is chosen at run time take kolo::DistributedDataParallel");

 public:
  /// Takes the optimizer over. Collective: kMismatch where ranks have different parameters.
  DistributedOptimizer(O&& optimizer, const NamedTensors& named_parameters,
                       const DistributedOptimizerOptions& options = {})
      : O(std::move(optimizer)),
        reducer_(
            std::make_unique<GradientReducer>(this->param_groups(), named_parameters, options)) {
    reducer().look_at(*this);
  }
  DistributedOptimizer(O&& optimizer,
                       const torch::OrderedDict<std::string, torch::Tensor>& named_parameters,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::move(optimizer), NamedTensors(named_parameters.pairs()),
                             options) {}
  /// An optimizer that stays outside would step on its own groups: move it in.
  DistributedOptimizer(O& optimizer, const NamedTensors&,
                       const DistributedOptimizerOptions& = {}) = delete;
  DistributedOptimizer(O& optimizer, const torch::OrderedDict<std::string, torch::Tensor>&,
                       const DistributedOptimizerOptions& = {}) = delete;

  torch::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    if (closure == nullptr) {
      reducer().adopt_for_step(this->param_groups());
      reducer().synchronize_for_step();
      torch::Tensor none = O::step(nullptr);  // LBFGS says itself that it needs a closure
      reducer().look_at(*this);
      return none;
    }
    reducer().adopt(this->param_groups());
    torch::Tensor first_loss = O::step([&] {
      torch::Tensor loss = closure();
      reducer().synchronize_for_step();
      // Its line search must take the same decisions on every rank.
      if constexpr (std::is_base_of_v<torch::optim::LBFGS, O>) loss = reducer().reduce_loss(loss);
      return loss;
    });
    reducer().look_at(*this);
    return first_loss;
  }

  void zero_grad(bool set_to_none = true) {
    reducer().adopt(this->param_groups());
    reducer().discard(!set_to_none);
    reducer().look_at(*this);
    O::zero_grad(set_to_none);
  }

  void add_param_group(const torch::optim::OptimizerParamGroup& group) {
    reducer().check_group(this->param_groups().size(), group);
    O::add_param_group(group);
    reducer().adopt(this->param_groups());
  }

  /// With weigh_by_samples, on every rank before each step's backward: how many samples this rank's
  /// loss is the mean of. A rank without any says 0 and makes no backward.
  void set_sample_count(std::int64_t samples) { reducer().set_sample_count(samples); }

  /// Waits for every gradient, also of parameters that backward has not reached on all ranks.
  void synchronize() override {
    reducer().adopt_for_step(this->param_groups());
    reducer().synchronize();
  }
  void skip_synchronize() override { reducer().skip_next(); }
  ProcessSet process_set() const override { return reducer().process_set(); }
  /// synchronize(), then scales all gradients so that their norm over all parameters is at most
  /// `max_norm`; the next step() does not synchronize again. Returns the norm before, which is the
  /// same on every rank.
  double clip_grad_norm(double max_norm, double norm_type = 2.0) {
    synchronize();
    std::vector<torch::Tensor> parameters;
    for (const auto& group : this->param_groups())
      parameters.insert(parameters.end(), group.params().begin(), group.params().end());
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, max_norm, norm_type);
    reducer().skip_next();
    return norm;
  }

  /// Gradients that were submitted and not yet synchronized.
  std::size_t pending() const { return reducer().pending(); }

 private:
  GradientReducer& reducer() const {
    if (reducer_ == nullptr) GradientReducer::refuse_moved();
    return *reducer_;
  }

  std::unique_ptr<GradientReducer> reducer_;
};

}  // namespace kolo
