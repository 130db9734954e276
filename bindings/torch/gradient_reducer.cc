// GradientReducer: starts a gradient's all-reduce when it is accumulated, and waits for all of
// them. A gradient's own state and its way there and back are in reduced_gradient.cc.
#include "bindings/torch/gradient_groups.h"
#include "bindings/torch/name_number.h"
#include "bindings/torch/tensor_memory.h"

#include <kolo/torch/distributed_optimizer.h>

#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace kolo {
namespace {

void check(const DistributedOptimizerOptions& options) {
  const auto wrong = [](const std::string& what) {
    raise(ErrorCode::kInvalidArgument, "DistributedOptimizer: " + what);
  };
  if (options.backward_passes_per_step < 1) {
    wrong("backward_passes_per_step is " + std::to_string(options.backward_passes_per_step) +
          "; it is 1 or more");
  }
  const double factor = options.gradient_predivide_factor;
  if (!(factor > 0) || factor > 1e30) {
    wrong("gradient_predivide_factor is " + std::to_string(factor) + "; it is above 0");
  }
  if (options.op != ReduceOp::kAverage && options.op != ReduceOp::kSum &&
      options.op != ReduceOp::kAdasum) {
    wrong("op is " + std::string(to_string(options.op)) + "; it is average, sum or adasum");
  }
  if (options.op == ReduceOp::kAverage) return;
  if (factor != 1.0) wrong("gradient_predivide_factor divides averages; op must be kAverage");
  if (options.weigh_by_samples) wrong("weigh_by_samples makes averages; op must be kAverage");
}

}  // namespace

struct GradientReducer::State final : GradientListener,
                                      std::enable_shared_from_this<GradientReducer::State> {
  NameNumber number;
  std::string prefix;
  ReductionSettings settings;
  std::deque<ReducedGradient> gradients;
  std::deque<GradientGroup> groups;
  TensorWork samples;  ///< their sum over the ranks, under way
  bool skip = false;
  std::mutex mutex;  ///< of the hooks, which each device's thread of autograd's calls

  void add(torch::Tensor tensor, const std::string& name);
  void install(std::size_t index);

  void before_accumulation(std::size_t index) override {
    const std::lock_guard lock(mutex);
    gradients[index].before_accumulation();
  }
  void after_accumulation(std::size_t index) override {
    const std::lock_guard lock(mutex);
    skip = false;
    gradients[index].after_accumulation();
  }
  std::string full_name(std::size_t index) const override { return gradients[index].name(); }
};

void GradientReducer::State::add(torch::Tensor tensor, const std::string& name) {
  if (const auto owner = GradientHooks::owner_of(tensor)) {
    raise(ErrorCode::kInvalidArgument, "parameter '" + name +
                                           "' is in another DistributedOptimizer already, as '" +
                                           *owner + "'; a parameter belongs to one");
  }
  gradients.emplace_back(prefix + name, std::move(tensor), settings);
  install(gradients.size() - 1);
}

void GradientReducer::State::install(std::size_t index) {
  // Autograd takes hooks of tensors that require a gradient only; a frozen parameter gets its own
  // when it is first seen unfrozen.
  gradients[index].install(weak_from_this(), index);
}

GradientReducer::GradientReducer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                                 const NamedTensors& named,
                                 const DistributedOptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  static_cast<void>(options.process_set.size());  // an error before init
  check(options);
  state_->number = NameNumber("optimizer", options.process_set.id());
  state_->prefix = state_->number.prefix();
  state_->settings = {options, {}, {}};
  std::map<const void*, std::string> names;
  std::map<std::string, const void*> tensors;
  for (const auto& [name, tensor] : named) {
    const void* const key = tensor.unsafeGetTensorImpl();
    if (const auto [it, is_new] = tensors.emplace(name, key); !is_new && it->second != key) {
      raise(ErrorCode::kInvalidArgument, "two named parameters are called '" + name + "'");
    }
    if (const auto [it, is_new] = names.emplace(key, name); !is_new && it->second != name) {
      raise(ErrorCode::kInvalidArgument,
            "one parameter is called both '" + it->second + "' and '" + name + "'; name it once");
    }
  }
  std::vector<std::string> names_in_order;
  std::vector<torch::Tensor> parameters;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const torch::Tensor& tensor = groups[g].params()[i];
      const auto name = names.find(tensor.unsafeGetTensorImpl());
      if (name == names.end()) {
        raise(ErrorCode::kInvalidArgument,
              "parameter " + std::to_string(i) + " of group " + std::to_string(g) +
                  " of the optimizer is not among the named parameters; pass the "
                  "named_parameters() of the same module");
      }
      names_in_order.push_back(name->second);
      parameters.push_back(tensor);
    }
  }
  const auto together = members_of(options.groups, names_in_order, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) state_->add(parameters[i], names_in_order[i]);
  for (const auto& members : together) {
    std::vector<ReducedGradient*> gradients;
    for (const std::size_t index : members) gradients.push_back(&state_->gradients[index]);
    state_->groups.emplace_back(state_->prefix + "group" + std::to_string(state_->groups.size()),
                                std::move(gradients), state_->settings);
  }
}

GradientReducer::~GradientReducer() {
  state_->samples.drain();
  for (ReducedGradient& gradient : state_->gradients) gradient.discard(false);
}

void GradientReducer::add_group(std::size_t index, const torch::optim::OptimizerParamGroup& group) {
  for (std::size_t i = 0; i < group.params().size(); ++i) {
    state_->add(group.params()[i],
                "group" + std::to_string(index) + ".parameter" + std::to_string(i));
  }
}

void GradientReducer::set_sample_count(std::int64_t samples) {
  if (!state_->settings.options.weigh_by_samples || samples < 0) {
    raise(ErrorCode::kInvalidArgument,
          "set_sample_count(" + std::to_string(samples) + "): " +
              (samples < 0 ? "a count is not negative"
                           : "the optimizer was made without weigh_by_samples"));
  }
  state_->samples.drain();
  state_->settings.samples = samples;
  state_->samples = allreduce_async(
      torch::tensor({samples}, torch::kInt64),
      {.name = state_->prefix + "samples", .process_set = state_->settings.options.process_set});
}

void GradientReducer::synchronize() {
  std::exception_ptr first;
  const auto attempt = [&](auto&& action) {
    try {
      action();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  };
  for (std::size_t i = 0; i < state_->gradients.size(); ++i) {
    attempt([&] {
      state_->install(i);
      state_->gradients[i].submit_missing();
    });
  }
  // One whose last members do not require a gradient any more.
  for (GradientGroup& group : state_->groups) attempt([&] { group.start_if_ready(); });
  if (state_->samples.valid()) {
    attempt([&] {
      state_->settings.total_samples =
          std::exchange(state_->samples, {}).wait().item<std::int64_t>();
    });
  }
  for (ReducedGradient& gradient : state_->gradients) attempt([&] { gradient.finish(); });
  state_->settings.samples.reset();
  if (first) std::rethrow_exception(first);
}

void GradientReducer::synchronize_for_step() {
  if (!std::exchange(state_->skip, false)) synchronize();
}

void GradientReducer::skip_next() {
  if (pending() > 0) {
    raise(ErrorCode::kInvalidArgument,
          "skip_synchronize(): gradients are under way; call synchronize() first");
  }
  state_->skip = true;
}

void GradientReducer::discard(bool gradients_stay) {
  state_->samples.drain();
  state_->samples = {};
  state_->settings.samples.reset();
  state_->skip = false;
  for (std::size_t i = 0; i < state_->gradients.size(); ++i) {
    state_->gradients[i].discard(gradients_stay);
    state_->install(i);
  }
}

std::size_t GradientReducer::pending() const {
  std::size_t count = 0;
  for (const ReducedGradient& gradient : state_->gradients) count += gradient.pending() ? 1 : 0;
  return count;
}

torch::Tensor GradientReducer::average(const torch::Tensor& loss) const {
  return allreduce(loss.detach(), {.op = ReduceOp::kAverage,
                                   .name = state_->prefix + "loss",
                                   .process_set = state_->settings.options.process_set});
}

}  // namespace kolo
