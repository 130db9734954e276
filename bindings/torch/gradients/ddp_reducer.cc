#include "bindings/core/input_parts.h"
#include "bindings/core/job_failure.h"
#include "bindings/torch/gradients/ddp_agreement.h"
#include "bindings/torch/gradients/ddp_state.h"
#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

namespace kolo {
namespace {

/// Throws for a gradient that cannot be reduced.
void check_gradient(const AgreedTensor& parameter) {
  const torch::Tensor& gradient = parameter.tensor.grad();
  if (gradient.layout() != torch::kStrided) {
    raise(ErrorCode::kUnsupported,
          "the gradient of parameter '" + parameter.name +
              "' is sparse; make its embedding with dense gradients, or use "
              "DistributedOptimizer");
  }
  refuse_graph("DistributedDataParallel", parameter.name, gradient);
  if (gradient.sizes() != parameter.layout.sizes()) {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("DistributedDataParallel: the gradient of parameter '{}' has the sizes [{}], "
                      "but the parameter has [{}]",
                      parameter.name, fmt::join(gradient.sizes(), ", "),
                      fmt::join(parameter.layout.sizes(), ", ")));
  }
}

}  // namespace

void DdpReducer::State::build(const std::vector<std::size_t>& in_order) {
  std::vector<AgreedLayout> layouts;
  for (const Parameter& parameter : parameters) layouts.push_back(parameter.layout);
  const auto groups = assign_buckets(layouts, in_order, std::min(options.bucket_cap_mb, 1.0),
                                     options.bucket_cap_mb);
  const bool with_memory = options.gradient_as_bucket_view || hook != nullptr;
  std::vector<Bucket> made;
  for (const auto& members : groups) {
    Bucket& bucket = made.emplace_back();
    bucket.members = members;
    // Another grouping uses other names, so that no cache remembers the shapes of the former one.
    bucket.name = round.prefix() + "grouping" + std::to_string(stats.rebuilds) + "/bucket" +
                  std::to_string(made.size() - 1);
    if (with_memory) bucket.memory = memory_for(members);
  }
  buckets = std::move(made);  // replaced as a whole, or not at all
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (std::size_t k = 0; k < buckets[b].members.size(); ++k) {
      parameters[buckets[b].members[k]].bucket = b;
      parameters[buckets[b].members[k]].position = k;
    }
  }
  stats.buckets = static_cast<std::int64_t>(buckets.size());
}

BucketMemory DdpReducer::State::memory_for(const std::vector<std::size_t>& members) const {
  std::vector<AgreedLayout> layouts;
  for (const std::size_t i : members) layouts.push_back(parameters[i].layout);
  return BucketMemory(layouts);
}

void DdpReducer::State::before_accumulation(std::size_t index) {
  const std::lock_guard lock(mutex);
  Parameter& parameter = parameters[index];
  if (parameter.pass.received == 0) parameter.is_made = !parameter.tensor.grad().defined();
}

void DdpReducer::State::after_accumulation(std::size_t index) {
  const torch::NoGradGuard no_grad;
  std::unique_lock lock(mutex);
  Parameter& parameter = parameters[index];
  parameter.touched = true;
  if (forwards.is_local()) {
    if (forwards.enter_local(torch::autograd::get_current_graph_task_id()))
      queue(&State::end_local_backward);
    return;
  }
  if (!pass.exists()) begin_pass();
  follow();
  ++parameter.pass.received;
  if (counts()) {
    pass.received.push_back(index);
    return;
  }
  if (parameter.pass.ready) {
    // The parameter is finished on all ranks; this gradient is on this rank alone.
    attempt([&] {
      raise(ErrorCode::kInvalidArgument,
            "DistributedDataParallel: parameter '" + parameter.name +
                "' got a gradient that rank " + std::to_string(rank()) + " did not expect: " +
                (options.static_graph
                     ? "this step uses other parameters than the first one, or uses them more "
                       "often, which static_graph promises that no step does"
                 : options.find_unused_parameters
                     ? "it is in no output of the module's forward, or gets its gradient in a "
                       "backward inside another one (activation checkpointing), where static_graph "
                       "takes the place of find_unused_parameters"
                     : "it gets several in one backward, as from two parts that are computed anew "
                       "(activation checkpointing); set static_graph, which expects as many as "
                       "the first step brings"));
    });
    return;
  }
  if (parameter.pass.received < parameter.expected) return;
  mark_ready(index, true);
  lock.unlock();
  start_full_buckets();
}

void DdpReducer::State::end_local_backward() {
  const std::lock_guard lock(mutex);
  forwards.end_local(Backward::is_inner());
}

void DdpReducer::State::communicate_behind(const std::vector<torch::Tensor>& outputs) {
  for (const torch::Tensor& output : outputs) {
    if (!output.defined() || output.grad_fn() == nullptr) continue;
    call_before(*output.grad_fn(), [weak = weak_from_this()] {
      const auto self = std::static_pointer_cast<State>(weak.lock());
      if (!self) return;
      const std::lock_guard lock(self->mutex);
      self->forwards.communicate();
    });
  }
}

void DdpReducer::State::begin_pass() {
  pass.course = Course::kWhole;
  round.step().go_on();
  round.step().skip(forwards.dropped());
  if (options.weigh_by_samples) attempt_together([&] { hear_samples(); });
  const bool known = options.static_graph && !users.empty();
  if (!known && !searches()) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (known ? bool{never_used[i]} : forwards.is_unused(parameters[i].tensor))
      mark_ready(i, false);
  }
}

void DdpReducer::State::hear_samples() {
  if (samples.is_missing())
    samples.refuse("backward that communicates", round.prefix() + "samples", {});
  const auto mine = static_cast<double>(samples.end().value_or(0));
  samples.hear(round.step());
  if (samples.all() == 0)
    raise(ErrorCode::kInvalidArgument,
          "DistributedDataParallel: set_sample_count() told 0 on all ranks, so that this step has "
          "no average");
  // The average over the ranks is then the average over all samples.
  pass.weight = mine * samples.participants() / static_cast<double>(samples.all());
}

void DdpReducer::State::weigh(const torch::Tensor& gradients) const {
  const torch::NoGradGuard no_grad;
  // A mean of no samples is NaN, and stays NaN when multiplied by 0.
  if (pass.weight == 0) {
    gradients.zero_();
  } else if (pass.weight != 1) {
    gradients.mul_(pass.weight);
  }
}

void DdpReducer::State::put_gradient(Parameter& parameter, bool has_new) {
  BucketMemory& memory = buckets[parameter.bucket].memory;
  torch::Tensor& gradient = parameter.tensor.mutable_grad();
  check_unchanged(parameter);
  if (gradient.defined()) check_gradient(parameter);
  // A gradient that stays unchanged if no rank brings a new one must survive the average.
  if (!has_new && gradient.defined()) parameter.pass.earlier = gradient.clone();
  if (!memory.defined()) return;
  const std::size_t k = parameter.position;
  const auto bytes = static_cast<std::int64_t>(parameter.tensor.nbytes());
  stats.bucket_bytes_written += bytes;
  if (!gradient.defined()) {
    torch::Tensor(memory.view(k)).zero_();
    return;
  }
  if (!memory.holds(k, gradient)) {
    memory.copy_in(k, gradient);
    stats.copied_bytes += bytes;
  }
  if (options.gradient_as_bucket_view) gradient = memory.alias(k);
}

void DdpReducer::State::mark_ready(std::size_t index, bool has_new) {
  Parameter& parameter = parameters[index];
  Bucket& bucket = buckets[parameter.bucket];
  parameter.pass.ready = true;
  pass.order.push_back(index);
  attempt([&] {
    try {
      put_gradient(parameter, has_new);
    } catch (...) {
      pass.missing[index] = 1;
      bucket.pass.incomplete = true;
      throw;
    }
  });
  bucket.pass.streams.add(parameter.tensor.device());
  if (++bucket.pass.ready == bucket.members.size()) pass.full.push_back(parameter.bucket);
}

void DdpReducer::State::mark_received() {
  for (Parameter& parameter : parameters) parameter.expected = std::max(1, parameter.pass.received);
  for (const std::size_t i : std::exchange(pass.received, {}))
    if (--parameters[i].pass.received == 0) mark_ready(i, true);
}

void DdpReducer::State::mark_rest(bool is_error) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].pass.ready) continue;
    if (is_error) {
      pass.missing[i] = 1;
      buckets[parameters[i].bucket].pass.incomplete = true;
    }
    mark_ready(i, false);
  }
  start_full_buckets();
}

void DdpReducer::State::start_full_buckets() {
  while (true) {
    std::unique_lock lock(mutex);
    if (pass.full.empty()) return;
    const std::size_t bucket = pass.full.front();
    pass.full.erase(pass.full.begin());
    lock.unlock();
    attempt_together([&] { start(bucket); });
  }
}

TensorWork DdpReducer::State::send(Parameter& parameter) {
  const auto index = static_cast<std::size_t>(&parameter - parameters.data());
  torch::Tensor& gradient = parameter.tensor.mutable_grad();
  const bool absent = pass.missing[index] != 0 || !gradient.defined();
  torch::Tensor& sent = parameter.pass.sent;
  sent = absent ? parameter.zeros() : gradient;
  // Autograd may have used a view of a buffer that another parameter's gradient views, too. If the
  // user has made such views, they stay.
  if (!absent && gradient.storage().use_count() > 1) {
    sent = gradient.clone();
    if (parameter.is_made) gradient = sent;
  }
  weigh(sent);
  return start_allreduce(sent, sent, {.op = ReduceOp::kAverage, .name = full_name(index)}, absent);
}

void DdpReducer::State::start(std::size_t index) {
  Bucket& bucket = buckets[index];
  const StepScope scope = round.step().scope();
  bucket.pass.streams.join();
  if (!bucket.memory.defined()) {
    for (const std::size_t i : bucket.members) bucket.pass.works.push_back(send(parameters[i]));
    return;
  }
  const torch::Tensor& flat = bucket.memory.flat();
  weigh(flat);
  if (!hook) {
    const InputParts parts([&](std::uint64_t element) {
      return parameters[bucket.members[bucket.memory.tensor_at(element)]].name;
    });
    bucket.pass.works = {start_allreduce(
        flat, flat, {.op = ReduceOp::kAverage, .name = bucket.name}, bucket.pass.incomplete)};
    return;
  }
  GradBucket told{index, bucket.name, flat, bucket.memory.views(), {}, index + 1 == buckets.size()};
  for (const std::size_t i : bucket.members) told.parameters.push_back(parameters[i].tensor);
  call_hook(bucket, [&] { bucket.pass.result = hook(told); });
}

void DdpReducer::State::call_hook(const Bucket& bucket, const std::function<void()>& call) {
  abort_on_failure(call, [&] {
    return "DistributedDataParallel: the communication hook has failed for bucket '" + bucket.name +
           "'";
  });
}

NamedTensors DdpReducer::State::reduced() const {
  NamedTensors named;
  for (const Parameter& parameter : parameters)
    named.emplace_back(parameter.name, parameter.tensor);
  return named;
}

std::vector<std::string> DdpReducer::State::names_in(const Bucket& bucket) const {
  std::vector<std::string> names;
  for (const std::size_t i : bucket.members) names.push_back(parameters[i].name);
  return names;
}

DdpReducer::State::State(const NamedTensors& named, const NamedTensors& named_buffers,
                         const DdpOptions& given)
    : BackwardRound({.holder = "DistributedDataParallel",
                     .kind = "ddp",
                     .parameters = [this] { return reduced(); },
                     .begins_equal = true,
                     .steps = ". A training forward counts, too, where its output is dropped "
                              "before a backward: evaluate in eval() or without grad mode"}),
      options(given),
      forwards(options.find_unused_parameters && !options.static_graph) {
  check_module(round.prefix(), named, named_buffers, options);
  broadcast_packed(round.prefix() + "parameters/", agreed_on(named));
  buffers = agreed_on(named_buffers);
  if (options.broadcast_buffers) broadcast_packed(round.prefix() + "buffers/", buffers);
  std::set<const c10::TensorImpl*> seen;  // a parameter may have several names
  for (auto& [name, tensor] : named) {
    listed.insert({tensor.unsafeGetTensorImpl(), tensor.requires_grad()});
    if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    parameters.emplace_back(AgreedTensor{name, tensor});
  }
  // Backward makes gradients roughly in the reverse of the modules' parameter order.
  std::vector<std::size_t> reverse;
  for (std::size_t i = parameters.size(); i-- > 0;) reverse.push_back(i);
  build(reverse);
  reset_pass();
}

DdpReducer::DdpReducer(NamedTensors named, NamedTensors buffers, const DdpOptions& options)
    : parameters_(std::move(named)), buffers_(std::move(buffers)), options_(options) {
  begin();
}

void DdpReducer::begin() {
  state_ = std::make_shared<State>(parameters_, buffers_, options_);
  if (hook_) install_hook();
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    State::Parameter& parameter = state_->parameters[i];
    parameter.hooks = GradientHooks(parameter.tensor, state_->weak_from_this(), i);
  }
}

DdpReducer::~DdpReducer() { end(); }

void DdpReducer::leave_world() {
  end();
  state_.reset();
}

void DdpReducer::enter_world() { begin(); }

void DdpReducer::end() {
  if (!state_) return;
  // Not during an exception, which one rank may have alone.
  if (state_->pass.exists() && std::uncaught_exceptions() == 0) {
    state_->end_interrupted();
    return;
  }
  for (State::Bucket& bucket : state_->buckets)
    if (bucket.pass.result) state_->attempt([&] { bucket.pass.result(); });
  state_->reset_pass();
}

std::string DdpReducer::State::unknown_in(const torch::nn::Module& module) const {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const auto it = listed.find(item.value().unsafeGetTensorImpl());
    if (it != listed.end() && it->second) continue;
    return "DistributedDataParallel: parameter '" + item.key() +
           (it == listed.end() ? "' was registered since this was made"
                               : "' requires a gradient, but did not when this was made") +
           ", so it would not be averaged; make a new DistributedDataParallel, after the end of "
           "this one";
  }
  return "";
}

void DdpReducer::State::check_unchanged(const Parameter& parameter) {
  const std::string change = parameter.layout.change_in(parameter.tensor);
  if (change.empty()) return;
  raise(ErrorCode::kInvalidArgument,
        "DistributedDataParallel: parameter '" + parameter.name + "' " + change +
            "; change a module before it is wrapped, or make a new DistributedDataParallel, after "
            "the end of this one");
}

void DdpReducer::before_forward(const torch::nn::Module& module) {
  if (!state_) {
    raise(ErrorCode::kInvalidArgument,
          "DistributedDataParallel: its world has ended, and elastic::run() could not take it to "
          "the next one; end the program");
  }
  State& state = *state_;
  state.forwards.leave();
  if (!torch::GradMode::is_enabled()) return;
  if (state.pass.exists()) {
    state.end_interrupted();
    throw_job_failure();  // throws if the job's failure, not the user's exception, ended that
                          // backward
  }
  const bool is_together = state.forwards.begin(module.is_training());
  if (is_together) check_initialized("DistributedDataParallel");
  if (is_together && state.options.broadcast_buffers)
    receive_buffers(state.round.prefix() + "buffers/", state.buffers);
  // Within no_sync() the next forward outside detects it.
  if (state.forwards.is_in_no_sync()) return;
  std::exception_ptr why;
  try {
    if (std::string unknown = state.unknown_in(module); !unknown.empty())
      raise(ErrorCode::kInvalidArgument, std::move(unknown));
    if (!is_together) return;  // a backward, if there is one, detects changes
    for (const State::Parameter& parameter : state.parameters) State::check_unchanged(parameter);
    state.forwards.expect_pass();
    return;
  } catch (const Exception&) {
    if (!is_together) throw;
    why = std::current_exception();
  }
  state.refuse_pass(why);
}

bool DdpReducer::wants_outputs() const {
  return torch::GradMode::is_enabled() && state_->forwards.wants_outputs();
}

void DdpReducer::after_forward(const std::vector<torch::Tensor>& outputs, bool complete) {
  if (state_->forwards.end(outputs, complete)) state_->communicate_behind(outputs);
}

bool DdpReducer::set_local(bool local) { return state_->forwards.set_local(local); }

void DdpReducer::set_sample_count(std::int64_t samples) {
  if (!state_->options.weigh_by_samples) {
    raise(ErrorCode::kInvalidArgument,
          "set_sample_count(): DistributedDataParallel was made without weigh_by_samples");
  }
  SampleShare::check(samples);
  state_->samples.tell(samples, state_->round.prefix() + "samples", {});
}

void DdpReducer::register_comm_hook(CommHook hook) {
  if (!hook || hook_) {
    raise(ErrorCode::kInvalidArgument, hook ? "register_comm_hook(): there is one already"
                                            : "register_comm_hook(): it is empty");
  }
  hook_ = std::move(hook);
  install_hook();
}

void DdpReducer::install_hook() {
  state_->hook = hook_;
  for (State::Bucket& bucket : state_->buckets)
    if (!bucket.memory.defined()) bucket.memory = state_->memory_for(bucket.members);
}

DdpStats DdpReducer::stats() const { return state_->stats; }

std::optional<Replicas> make_replicas(const torch::nn::Module& module, const DdpOptions& options) {
  if (options.device_ids.size() < 2) return std::nullopt;
  const auto parameters = module.parameters();
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.device() != parameters.front().device()) return std::nullopt;
  }
  const torch::Device output = options.output_device.value_or(options.device_ids.front());
  return std::optional<Replicas>(std::in_place, "DistributedDataParallel", module,
                                 options.device_ids, output);
}

void raise_not_replicable(const torch::nn::Module& module) {
  raise(ErrorCode::kUnsupported,
        "DistributedDataParallel with several device_ids: forward of " + module.name() +
            " takes or returns something else than tensors, or tuples and vectors of them; start a "
            "process per device");
}

}  // namespace kolo
