#include "tests/bindings/torch/stress/model.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace kolo::test {
namespace {

using torch::Tensor;
using torch::optim::OptimizerParamGroup;

template <class O>
using OptionsOf = typename OptimizerDefaults<O>::Type;

template <class O>
OptionsOf<O> options_of(int flavour, double lr) {
  using namespace torch::optim;
  // Large epsilons: gradients that are zero but for rounding must stay so.
  if constexpr (std::is_same_v<O, SGD>) {
    return SGDOptions(lr)
        .momentum(flavour == 0 ? 0 : 0.9)
        .dampening(flavour == 2 ? 0.1 : 0)
        .weight_decay(flavour == 1 ? 0.01 : 0)
        .nesterov(flavour == 3);
  } else if constexpr (std::is_same_v<O, Adam> || std::is_same_v<O, AdamW>) {
    return OptionsOf<O>(lr)
        .eps(1e-2)
        .amsgrad(flavour % 2 == 1)
        .weight_decay(flavour > 1 ? 0.01 : 0);
  } else if constexpr (std::is_same_v<O, RMSprop>) {
    return RMSpropOptions(lr)
        .eps(1e-2)
        .centered(flavour == 1)
        .momentum(flavour == 2 ? 0.9 : 0)
        .weight_decay(flavour == 3 ? 0.01 : 0);
  } else if constexpr (std::is_same_v<O, Adagrad>) {
    return AdagradOptions(lr)
        .eps(1e-2)
        .lr_decay(flavour % 2 == 1 ? 0.1 : 0)
        .initial_accumulator_value(flavour > 1 ? 0.1 : 0);
  } else {
    return LBFGSOptions(lr * 5)
        .max_iter(3)
        .history_size(flavour + 1)
        .line_search_fn(flavour == 3 ? std::optional<std::string>("strong_wolfe") : std::nullopt);
  }
}

std::vector<Tensor> parameters_of(const torch::optim::Optimizer& optimizer) {
  std::vector<Tensor> all;
  for (const auto& group : optimizer.param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

/// Parameters of the layers that are in the optimizer from the start, dealt out to the plan's
/// groups.
template <class O>
O make_optimizer(const ModelPlan& plan, NetworkImpl& network) {
  std::vector<std::vector<Tensor>> dealt(static_cast<std::size_t>(plan.groups));
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    if (plan.layers[i].joins_at != kNever) continue;
    auto& group = dealt[i % dealt.size()];
    const auto& own = network.parameters_of(i);
    group.insert(group.end(), own.begin(), own.end());
  }
  std::vector<OptimizerParamGroup> groups;
  for (std::size_t g = 0; g < dealt.size(); ++g) {
    if (dealt[g].empty()) continue;
    groups.emplace_back(dealt[g], std::make_unique<OptionsOf<O>>(options_of<O>(
                                      plan.flavour, kLearningRate / static_cast<double>(g + 1))));
  }
  return O(groups, options_of<O>(plan.flavour, kLearningRate));
}

Network make_network(const ModelPlan& plan, const Place& place, std::uint64_t weights) {
  torch::manual_seed(weights);
  return Network(plan, place.alone ? std::nullopt : std::optional(place.set));
}

template <class O>
class Base : public Model {
 public:
  Base(const ModelPlan& plan, const Place& place, std::uint64_t weights)
      : plan_(plan), place_(place), network_(make_network(plan, place, weights)) {}
  Network& network() override { return network_; }
  std::unique_ptr<torch::optim::OptimizerOptions> group_options(double lr) const override {
    return std::make_unique<OptionsOf<O>>(options_of<O>(plan_.flavour, lr));
  }

 protected:
  const ModelPlan plan_;
  const Place place_;
  Network network_;
};

/// Trains with stock LibTorch.
template <class O>
class Alone : public Base<O> {
 public:
  Alone(const ModelPlan& plan, const Place& place, std::uint64_t weights)
      : Base<O>(plan, place, weights), optimizer_(make_optimizer<O>(plan, *this->network_)) {}
  torch::optim::Optimizer& optimizer() override { return optimizer_; }
  void zero_grad(bool to_none) override { optimizer_.zero_grad(to_none); }
  void add_group(const OptimizerParamGroup& group) override { optimizer_.add_param_group(group); }
  void clip(double norm) override {
    torch::nn::utils::clip_grad_norm_(parameters_of(optimizer_), norm);
  }

 private:
  O optimizer_;
};

GradientGroups travel_groups(const ModelPlan& plan, const torch::optim::Optimizer& optimizer) {
  if (plan.travel_groups == 0) return {};
  if (plan.travel_groups > 0) return plan.travel_groups;
  std::vector<std::vector<Tensor>> lists;
  for (const Tensor& parameter : parameters_of(optimizer)) {
    if (lists.empty() || std::ssize(lists.back()) == -plan.travel_groups) lists.emplace_back();
    lists.back().push_back(parameter);
  }
  return lists;
}

std::shared_ptr<Compressor> compressor(Wire wire) {
  switch (wire) {
    case Wire::kWhole:
      return nullptr;
    case Wire::kFp16:
      return compression::fp16();
    case Wire::kBf16:
      return compression::bf16();
    case Wire::kFp16Feedback:
      return compression::fp16_with_error_feedback();
  }
  return nullptr;
}

/// One of kolo's optimizers, `Optimizer`, around O.
template <class O, class Optimizer>
class Wrapped : public Base<O> {
 public:
  /// `options_for` gives its options for the plain optimizer.
  template <class OptionsFor>
  Wrapped(const ModelPlan& plan, const Place& place, std::uint64_t weights,
          const OptionsFor& options_for)
      : Base<O>(plan, place, weights), optimizer_(make(options_for)) {}
  torch::optim::Optimizer& optimizer() override { return optimizer_; }
  void zero_grad(bool to_none) override { optimizer_.zero_grad(to_none); }
  void add_group(const OptimizerParamGroup& group) override {
    // The parameters are taken over at the next step() or zero_grad().
    if (this->plan_.flavour % 2 == 0) {
      static_cast<torch::optim::Optimizer&>(optimizer_).add_param_group(group);
    } else {
      optimizer_.add_param_group(group);
    }
  }
  void clip(double norm) override { optimizer_.clip_grad_norm(norm); }

 private:
  template <class OptionsFor>
  Optimizer make(const OptionsFor& options_for) {
    O plain = make_optimizer<O>(this->plan_, *this->network_);
    const auto options = options_for(this->plan_, this->place_, plain);
    return {std::move(plain), this->network_->named_parameters(), options};
  }

 protected:
  Optimizer optimizer_;
};

DistributedOptimizerOptions horovod_options(const ModelPlan& plan, const Place& place,
                                            const torch::optim::Optimizer& plain) {
  return {.op = plan.sum ? ReduceOp::kSum : ReduceOp::kAverage,
          .backward_passes_per_step = plan.counts_passes ? place.accumulation : 1,
          .gradient_predivide_factor = plan.predivide,
          .compression = compressor(plan.wire),
          .weigh_by_samples = plan.weighed,
          .groups = travel_groups(plan, plain),
          .process_set = place.set,
          .shared_gradients = plan.shared_gradients};
}

template <class O>
class Horovod : public Wrapped<O, DistributedOptimizer<O>> {
 public:
  Horovod(const ModelPlan& plan, const Place& place, std::uint64_t weights)
      : Wrapped<O, DistributedOptimizer<O>>(plan, place, weights, horovod_options) {}
  void set_sample_count(std::int64_t samples) override {
    if (this->plan_.weighed) this->optimizer_.set_sample_count(samples);
  }
  bool shows_gradients() const override {
    const ModelPlan& plan = this->plan_;
    // The step reduces parameters that were added; a group is reduced when all its members are
    // there.
    const bool alone = plan.travel_groups == 0;
    const bool steady =
        std::all_of(plan.layers.begin(), plan.layers.end(), [alone](const LayerPlan& layer) {
          return layer.joins_at == kNever && (alone || layer.freezes_at == kNever);
        });
    const bool rests_alike = plan.rests == Rests::kNone || (plan.rests == Rests::kBySteps && alone);
    return !plan.weighed && rests_alike && steady;
  }
};

CommHook hook_of(Hook hook) {
  return [hook](const GradBucket& bucket) -> std::function<Tensor()> {
    if (hook == Hook::kLate) {
      return [buffer = bucket.buffer, name = bucket.name] {
        if (within_comm_hooks()) within_comm_hooks()();
        return kolo::allreduce(buffer, {.op = ReduceOp::kAverage, .name = name});
      };
    }
    if (within_comm_hooks()) within_comm_hooks()();
    auto work =
        kolo::allreduce_async_(bucket.buffer, {.op = ReduceOp::kAverage, .name = bucket.name});
    return [work]() mutable { return work.wait(); };
  };
}

DdpOptions ddp_options(const ModelPlan& plan) {
  return {.bucket_cap_mb = plan.bucket_mb,
          .broadcast_buffers = plan.broadcast_buffers,
          .find_unused_parameters = plan.find_unused,
          .gradient_as_bucket_view = plan.bucket_view,
          .static_graph = plan.static_graph};
}

/// DistributedDataParallel with an optimizer that does not know of it.
template <class O, class Optimizer = O>
class Ddp : public Base<O> {
 public:
  Ddp(const ModelPlan& plan, const Place& place, std::uint64_t weights)
      : Base<O>(plan, place, weights) {
    if (plan.optimizer_first) make_the_optimizer();
    ddp_ = std::make_unique<DistributedDataParallel<Network>>(this->network_, ddp_options(plan));
    if (!plan.optimizer_first) make_the_optimizer();
    if (plan.hook != Hook::kNone) ddp_->register_comm_hook(hook_of(plan.hook));
  }
  std::vector<Tensor> forward(const std::vector<Part>& parts) override {
    return ddp_->forward(parts);
  }
  torch::optim::Optimizer& optimizer() override { return *optimizer_; }
  void zero_grad(bool to_none) override { optimizer_->zero_grad(to_none); }
  void add_group(const OptimizerParamGroup& group) override { optimizer_->add_param_group(group); }
  void clip(double norm) override {
    if constexpr (requires { optimizer_->clip_grad_norm(norm); }) {
      optimizer_->clip_grad_norm(norm);
    } else {
      torch::nn::utils::clip_grad_norm_(parameters_of(*optimizer_), norm);
    }
  }
  std::shared_ptr<void> begin_pass(bool last) override {
    if (last || !this->plan_.local_passes) return nullptr;
    return std::shared_ptr<NoSync>(new NoSync(ddp_->no_sync()));
  }

 private:
  void make_the_optimizer() {
    O plain = make_optimizer<O>(this->plan_, *this->network_);
    if constexpr (std::is_same_v<O, Optimizer>) {
      optimizer_ = std::make_unique<O>(std::move(plain));
    } else {
      const ShardedOptimizerOptions options{.gradients_are_reduced = true,
                                            .bucket_cap_mb = this->plan_.bucket_mb,
                                            .groups = travel_groups(this->plan_, plain)};
      optimizer_ = std::make_unique<Optimizer>(std::move(plain), this->network_->named_parameters(),
                                               options);
    }
  }

  std::unique_ptr<DistributedDataParallel<Network>> ddp_;
  std::unique_ptr<Optimizer> optimizer_;
};

ShardedOptimizerOptions sharded_options(const ModelPlan& plan, const Place& place,
                                        const torch::optim::Optimizer& plain) {
  return {.op = plan.sum ? ReduceOp::kSum : ReduceOp::kAverage,
          .gradient_predivide_factor = plan.predivide,
          .bucket_cap_mb = plan.bucket_mb,
          .groups = travel_groups(plan, plain),
          .process_set = place.set};
}

template <class O>
class Sharded : public Wrapped<O, ShardedOptimizer<O>> {
 public:
  Sharded(const ModelPlan& plan, const Place& place, std::uint64_t weights)
      : Wrapped<O, ShardedOptimizer<O>>(plan, place, weights, sharded_options) {}
  bool shows_gradients() const override { return false; }
};

template <class O>
class Accelerated : public Base<O> {
 public:
  Accelerated(const ModelPlan& plan, const Place& place, std::uint64_t weights)
      : Base<O>(plan, place, weights),
        plain_(make_optimizer<O>(plan, *this->network_)),
        accelerator_(AcceleratorConfig{.gradient_accumulation_steps = place.accumulation},
                     {.ddp = ddp_options(plan)}),
        prepared_(accelerator_.prepare(this->network_, plain_)) {}
  std::vector<Tensor> forward(const std::vector<Part>& parts) override {
    return std::get<0>(prepared_).forward(parts);
  }
  torch::optim::Optimizer& optimizer() override { return plain_; }
  void zero_grad(bool to_none) override { std::get<1>(prepared_).zero_grad(to_none); }
  void add_group(const OptimizerParamGroup& group) override { plain_.add_param_group(group); }
  void clip(double norm) override { accelerator_.clip_grad_norm(std::get<1>(prepared_), norm); }
  std::shared_ptr<void> begin_pass(bool) override {
    return std::shared_ptr<AccumulatedPass>(
        new AccumulatedPass(accelerator_.accumulate(std::get<0>(prepared_))));
  }
  void backward(const Tensor& loss) override { accelerator_.backward(loss); }
  bool steps_in_passes() const override { return true; }
  void step() override { std::get<1>(prepared_).step(); }

 private:
  O plain_;
  Accelerator accelerator_;
  std::tuple<PreparedModel<Network>, PreparedOptimizer<O>> prepared_;
};

template <class O>
std::unique_ptr<Model> make(const ModelPlan& plan, const Place& place, std::uint64_t weights) {
  if (place.alone) return std::make_unique<Alone<O>>(plan, place, weights);
  if (plan.way == Way::kHorovod) return std::make_unique<Horovod<O>>(plan, place, weights);
  if (plan.way == Way::kDdp) return std::make_unique<Ddp<O>>(plan, place, weights);
  if constexpr (!std::is_same_v<O, torch::optim::LBFGS>) {
    switch (plan.way) {
      case Way::kHorovod:
      case Way::kDdp:
        break;
      case Way::kSharded:
        return std::make_unique<Sharded<O>>(plan, place, weights);
      case Way::kShardedDdp:
        return std::make_unique<Ddp<O, ShardedOptimizer<O>>>(plan, place, weights);
      case Way::kAccelerator:
        return std::make_unique<Accelerated<O>>(plan, place, weights);
    }
  }
  throw std::logic_error("LBFGS trains in no such way");
}

}  // namespace

std::function<void()>& within_comm_hooks() {
  static std::function<void()> call;
  return call;
}

std::unique_ptr<Model> make_model(const ModelPlan& plan, const Place& place,
                                  std::uint64_t weights) {
  switch (plan.optimizer) {
    case OptimizerKind::kSgd:
      return make<torch::optim::SGD>(plan, place, weights);
    case OptimizerKind::kAdam:
      return make<torch::optim::Adam>(plan, place, weights);
    case OptimizerKind::kAdamW:
      return make<torch::optim::AdamW>(plan, place, weights);
    case OptimizerKind::kRmsprop:
      return make<torch::optim::RMSprop>(plan, place, weights);
    case OptimizerKind::kAdagrad:
      return make<torch::optim::Adagrad>(plan, place, weights);
    case OptimizerKind::kLbfgs:
      return make<torch::optim::LBFGS>(plan, place, weights);
  }
  throw std::logic_error("no such optimizer");
}

}  // namespace kolo::test
