// DistributedOptimizer: any LibTorch optimizer whose gradients are averaged over the ranks. Each
// gradient's all-reduce starts when autograd has accumulated it, and so overlaps the rest of
// backward. (After Horovod's DistributedOptimizer.)
//
//   kolo::DistributedOptimizer optimizer(torch::optim::AdamW(model->parameters(), 1e-3),
//                                        model->named_parameters());
//   optimizer.zero_grad();
//   torch::mse_loss(model->forward(input), target).backward();
//   optimizer.step();
//
// Rules:
// - It IS the optimizer that it was made from, with one set of groups and one state. So schedulers,
//   torch::save and torch::load, and step(closure) work as usual.
// - When backward() returns, the gradients of all parameters that it has reached on all ranks are
//   reduced. You may clip, read or replace them, in the same way on all ranks; step() takes them as
//   they are.
// - Gradients that only some ranks have reached stay in flight until step() or synchronize(). Do
//   not touch them before: step() then fails and names the parameter. Code that computes with them
//   may fail at once: torch::nn::utils::clip_grad_norm_() says "norm(): input dtype should be
//   either floating point or complex. Got Bool instead". clip_grad_norm() always works.
// - step() waits for all gradients in flight, then updates. With a closure it does so after each
//   call of the closure. LBFGS decides by the loss, so it gets the loss reduced like the gradients:
//   the average, the sum with kSum, weighed with weigh_by_samples.
// - Clear gradients by this zero_grad(), on all ranks, because it first ends operations in flight.
//   Reduced gradients that module->zero_grad() cleared are dropped. Clearing a gradient in flight
//   is an error that names the parameter.
// - Used by one thread at a time, like every optimizer. Its hooks run on autograd's threads.
//
// Steps:
// - Each rank waits at the end of backward() for the gradients of the others. If a rank makes no
//   backward for this optimizer and others do, it calls step() before any other collective. After
//   set_sample_count(0) it need not: then gradients of that step stay in flight until step().
// - Gradients of different steps never meet. A step begins with zero_grad(), or after step() if
//   zero_grad() is not called. A rank that skips a batch after zero_grad() (an early `continue`) is
//   a step ahead: the next backward() or step() throws kMismatch on all ranks, with their steps. Go
//   on with zero_grad(): all continue from the highest step, so the next steps meet.
// - A batch that a rank skips without any call, neither zero_grad() nor step(), cannot be detected.
//   A step that all ranks skip is no error.
// - After a timeout, ranks that come late get a timeout for the same step, too, and meet the others
//   in the next one.
// - A second backward before step() (other losses, retain_graph): the gradients of the passes add
//   up, each reduced over the ranks, as in one process. Each pass reaches the same parameters on
//   all ranks. A pass that only some ranks make, when the others have all their gradients, meets
//   the others' next step: kMismatch on all.
// - With backward_passes_per_step, gradients add up on each rank and travel with the last pass.
//   Until then they are this rank's own.
// - An exception may end a backward on one rank when only some of its gradients are ready. Once
//   that rank calls zero_grad(), the others' step() throws kInvalidArgument with the rank.
// - A rank that drops its averages by zero_grad() without step(), as after an exception between
//   backward and step(), has parted from the others if they made that step: the next backward() or
//   step() throws kMismatch on all ranks, with that rank.
//
// Parameters and gradients:
// - A parameter without a gradient on this rank takes part with zeros. If no rank has a gradient,
//   it stays undefined, so the optimizer skips the parameter as in one process. step() reduces a
//   gradient that was set by hand if no backward has reached the parameter.
// - Parameters that were added without this add_param_group(), for instance through a reference to
//   the base class, are adopted at the next step() or zero_grad(). Add the same on all ranks.
// - requires_grad may change between steps, in the same way on all ranks. Change it before
//   zero_grad(): if all parameters that a backward reaches were unfrozen after it, only step()
//   averages.
// - Sizes and types of parameters may change, in the same way on all ranks. Ranks agree on those of
//   a gradient when it travels (kMismatch, with the parameter and both). Strides may differ between
//   ranks.
// - Gradients have no graph: backward() with create_graph is an error that names the parameter. For
//   a penalty on gradients use torch::autograd::grad() with create_graph, and backward() of the
//   loss without.
// - A gradient that one rank cannot send is kInvalidArgument on all ranks, with that rank and the
//   parameter, from the backward() or step() that waits for it. Examples: create_graph, another
//   device or type, a compressor that throws, a missing set_sample_count(). Other gradients, and
//   other optimizers of the same backward, complete. Go on with zero_grad().
// - A sparse gradient (torch::nn::Embedding with sparse(true)) travels sparse: each rank gets the
//   indices and values of all ranks, and adds them in the order of the ranks. The parameter then
//   has a new gradient, coalesced. It is never compressed. It is sparse on all ranks that have one;
//   otherwise they get kMismatch. A rank without one takes part with an empty one. That rank must
//   know that the gradient is sparse elsewhere. The ranks learn so at the end of a backward, but
//   not while a rank has told set_sample_count(0). No rank may have joined.
// - Parameters may be on the CPU or on this rank's CUDA device; those of one group are on one
//   device. A gradient's reduction starts after the work that computes it. The stream of step()
//   waits for the averages.
//
// Comparison: ranks compare what each has of its own, in messages that are sent anyway.
// - Options of the groups (such as the learning rate) and step counts: with each step, as of
//   zero_grad() or the step before. The scale of a GradScaler, and requires_grad of each parameter:
//   with each backward. A difference throws kMismatch from backward() or step() on all ranks, with
//   the value's name, the ranks and both values. Go on with zero_grad() once all have the same
//   values.
// - Parameters: before the first step, then ever more rarely, at last with each 128th. If they
//   differ, the lowest rank warns once.
// - Nothing is compared while a rank has joined.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/torch/broadcast_parameters.h>
#include <kolo/torch/compression.h>
#include <kolo/torch/functions.h>
#include <kolo/torch/reducing_optimizer.h>
#include <kolo/torch/world_member.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace kolo {

/// Which gradients travel together, all or none of them (Horovod's `groups`):
/// - nothing: each gradient travels separately;
/// - a number: that many groups of even length, with the parameters in their order;
/// - lists of parameters, by name or as tensors.
using GradientGroups = std::variant<std::monostate, int, std::vector<std::vector<std::string>>,
                                    std::vector<std::vector<torch::Tensor>>>;

struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::kAverage;  ///< or kSum, kAdasum
  /// Number of passes that add up on this rank; the last one starts the all-reduce. The sum is not
  /// divided by this number. step() before the last pass reduces the present sum.
  int backward_passes_per_step = 1;
  /// Divides by this factor before the sum, and by size / factor after it. This avoids overflow of
  /// half types over NCCL; kolo's own sums of half types are float32. Only with kAverage.
  double gradient_predivide_factor = 1.0;
  /// Compresses gradients for the reduction. Null: no compression.
  std::shared_ptr<Compressor> compression = nullptr;
  /// Converts sparse gradients to dense ones, which stay dense. false: they travel sparse. Those of
  /// `groups`, and those with kAdasum, are then an error on all ranks.
  bool sparse_as_dense = false;
  /// Set it if ranks' gradients are means over batches of unequal size. Each gradient then counts
  /// by the samples that set_sample_count() has passed for the step. Only with kAverage and one
  /// pass a step. Gradients travel multiplied by samples / gradient_predivide_factor, which must
  /// fit their type.
  bool weigh_by_samples = false;
  /// Groups of gradients, the same on all ranks. E.g. `.groups = 2`. A group starts when its last
  /// gradient is ready, and fails as a whole. A member without a gradient takes part with zeros
  /// from step() on, as it does alone. Parameters outside the groups, and those of
  /// add_param_group(), travel separately.
  GradientGroups groups = {};
  /// The ranks over which gradients are reduced; default: all.
  ProcessSet process_set = {};
  /// Gradients that zero_grad(false) keeps move to memory that the ranks of a host share:
  /// kolo::allocate() (whole pages) or kolo::allocate_on_device(). All-reduces copy nothing there.
  /// The tensors stay the same. Some gradients keep their memory: those that you set yourself,
  /// compressed ones, those whose memory is also held elsewhere, and those that find no room.
  /// Gradients that zero_grad() releases are made anew elsewhere; copying them would cost as much
  /// as it saves.
  bool shared_gradients = true;
};

/// The part of DistributedOptimizer that does not depend on the optimizer's type:
///
///   kolo::GradientReducer reducer(sgd.param_groups(), network->named_parameters().pairs(), {});
///   loss_of(*network).backward();
///   reducer.synchronize_for_step();
///   sgd.step();
///   reducer.discard(/*gradients_stay=*/false), sgd.zero_grad();
class KOLO_API GradientReducer {
 public:
  /// Collective. All ranks make their optimizers in the same order: the n-th one calls its tensors
  /// "optimizer<n>/<name>".
  /// - Every parameter of `groups` must be in `named`, else kInvalidArgument names the missing one.
  ///   If `named` has several names for it, the first counts.
  /// - No parameter may be listed twice or belong to another DistributedOptimizer or
  ///   DistributedDataParallel.
  /// - Throws kMismatch on all ranks, with the first difference, unless they have the same
  ///   parameters (names, order, types, sizes, requires_grad).
  GradientReducer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                  const NamedTensors& named, const DistributedOptimizerOptions& options);
  /// Waits for operations in flight.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Throws kInvalidArgument if `group`, which becomes the optimizer's group `index`, lists a
  /// parameter twice or one that is in this optimizer or another one already.
  void check_group(std::size_t index, const torch::optim::OptimizerParamGroup& group) const;
  /// Adopts new parameters, as "group<i>.parameter<j>".
  void adopt(const std::vector<torch::optim::OptimizerParamGroup>& groups);
  /// Like adopt(), at a step of all ranks: it first calls synchronize() for the known parameters.
  void adopt_for_step(const std::vector<torch::optim::OptimizerParamGroup>& groups);
  /// Takes the optimizer's options and step counts, which ranks compare from now on. Between two
  /// steps.
  void look_at(const torch::optim::Optimizer& optimizer);
  /// As DistributedOptimizer::set_sample_count.
  void set_sample_count(std::int64_t samples);
  /// Waits for every gradient that is not reduced since the last backward. Throws the first
  /// failure, after all have ended.
  void synchronize();
  /// Calls synchronize(), unless skip_next() was called since the last time. Then it counts a step.
  void synchronize_for_step();
  /// The next synchronize_for_step() does not synchronize.
  void skip_next();
  /// Waits for operations in flight and forgets them, before gradients are cleared.
  /// `gradients_stay`: the gradients will be zeroed in place.
  void discard(bool gradients_stay);
  /// Number of gradients that were submitted and not yet synchronized.
  std::size_t pending() const;
  ProcessSet process_set() const;
  /// As WorldMember's.
  void leave_world();
  void enter_world(const std::vector<torch::optim::OptimizerParamGroup>& groups);
  /// Throws kInvalidArgument: the optimizer was moved from.
  [[noreturn]] static void refuse_moved();
  /// Reduces the scalar loss of a closure over the ranks, in the same way as its gradients.
  torch::Tensor reduce_loss(const torch::Tensor& loss) const;

 private:
  struct State;
  void begin(const std::vector<torch::optim::OptimizerParamGroup>& groups,
             const NamedTensors& named, const DistributedOptimizerOptions& options);
  void end();
  /// Throws kInvalidArgument between two worlds.
  State& in_world() const;

  std::shared_ptr<State> state_;  ///< null between two worlds
  /// What the next state is made of, between two worlds.
  std::optional<std::pair<NamedTensors, DistributedOptimizerOptions>> left_;
};

template <class O>
class DistributedOptimizer : public O, public ReducingOptimizer, public WorldMember {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, O>, "O is one of LibTorch's optimizers");
  static_assert(
      !std::is_abstract_v<O>,
      "O is an optimizer's own type, such as torch::optim::SGD, not the base class; for an "
      "optimizer that is chosen at run time take kolo::DistributedDataParallel");

 public:
  /// Takes over the optimizer. Collective: throws kMismatch if ranks have different parameters.
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
  /// Deleted: the original optimizer would step on its own groups. Move it in.
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
      // LBFGS's line search must take the same decisions on every rank.
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

  /// With weigh_by_samples, every rank calls it before each step's backward. `samples` is the
  /// number of samples over which this rank's loss is a mean. A rank without samples passes 0 and
  /// makes no backward.
  void set_sample_count(std::int64_t samples) { reducer().set_sample_count(samples); }

  /// Waits for every gradient, also for parameters that backward has not reached on all ranks.
  void synchronize() override {
    reducer().adopt_for_step(this->param_groups());
    reducer().synchronize();
  }
  void skip_synchronize() override { reducer().skip_next(); }
  ProcessSet process_set() const override { return reducer().process_set(); }
  /// Calls synchronize(), then scales all gradients so that their norm over all parameters is at
  /// most `max_norm`. The next step() does not synchronize again. Returns the norm before scaling,
  /// which is the same on every rank.
  double clip_grad_norm(double max_norm, double norm_type = 2.0) {
    synchronize();
    std::vector<torch::Tensor> parameters;
    for (const auto& group : this->param_groups())
      parameters.insert(parameters.end(), group.params().begin(), group.params().end());
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, max_norm, norm_type);
    reducer().skip_next();
    return norm;
  }

  /// Number of gradients that were submitted and not yet synchronized.
  std::size_t pending() const { return reducer().pending(); }

  void leave_world() override { reducer_->leave_world(); }
  void enter_world() override {
    reducer_->enter_world(this->param_groups());
    reducer().look_at(*this);
  }

 private:
  GradientReducer& reducer() const {
    if (reducer_ == nullptr) GradientReducer::refuse_moved();
    return *reducer_;
  }

  std::unique_ptr<GradientReducer> reducer_;
};

}  // namespace kolo
