#include "bindings/core/job_failure.h"
#include "bindings/torch/gradients/backward_callbacks.h"
#include "bindings/torch/gradients/ddp_agreement.h"
#include "bindings/torch/gradients/ddp_state.h"
#include "bindings/torch/tensors/check_initialized.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

namespace kolo {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;
constexpr double kMostBytes = 0x1p62;  ///< largest size of a bucket

}  // namespace

void DdpReducer::State::build(const std::vector<std::size_t>& in_order) {
  std::vector<AgreedLayout> layouts;
  for (const Parameter& parameter : parameters) layouts.push_back(parameter.layout);
  // The cap may be infinite.
  const auto cap =
      static_cast<std::int64_t>(std::min(options.bucket_cap_mb * kMebibyte, kMostBytes));
  const auto groups = assign_buckets(layouts, in_order, std::min(cap, kMebibyte), cap);
  const bool with_memory = options.gradient_as_bucket_view || hook != nullptr;
  std::vector<Bucket> made;
  for (const auto& members : groups) {
    Bucket& bucket = made.emplace_back();
    bucket.members = members;
    bucket.waiting = members.size();
    // Another grouping uses other names, so that no cache remembers the shapes of the former one.
    bucket.name = prefix + "grouping" + std::to_string(stats.rebuilds) + "/bucket" +
                  std::to_string(made.size() - 1);
    std::vector<AgreedLayout> group;
    for (const std::size_t member : members) group.push_back(layouts[member]);
    if (with_memory) bucket.memory = BucketMemory(group);
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

void DdpReducer::State::reset_pass() {
  for (Parameter& parameter : parameters) {
    parameter.received = 0;
    parameter.ready = false;
    parameter.earlier.reset();
    parameter.sent.reset();
    parameter.work = {};
  }
  for (Bucket& bucket : buckets) {
    bucket.waiting = bucket.members.size();
    bucket.incomplete = false;
    bucket.ready = {};
    bucket.work = {};
    bucket.result = nullptr;
  }
  in_pass = false;
  step.end();
  forwards.clear();
  owes_pass = false;
  any_in_eval = false;
  leave();
  leaves.clear();
  leaves_known = false;
  leaves_partial = false;
  received.clear();
  order.clear();
  full.clear();
  missing.assign(parameters.size(), 0);
  some_failed = false;
  everyone = true;
  failure = nullptr;
  severed = false;
  interrupted = false;
  agreement = {};
  all_missing = {};
  first_order = {};
}

void DdpReducer::State::abandon() {
  for (Parameter& parameter : parameters) parameter.work.drain();
  for (Bucket& bucket : buckets) {
    bucket.work.drain();
    if (bucket.result) attempt([&] { bucket.result(); });
  }
  drain_agreements();
  reset_pass();
}

void DdpReducer::State::drain_agreements() {
  for (TensorWork* const work : {&agreement, &all_missing, &first_order}) work->drain();
}

void DdpReducer::State::before_accumulation(std::size_t index) {
  const std::lock_guard lock(mutex);
  Parameter& parameter = parameters[index];
  if (parameter.received == 0) parameter.is_made = !parameter.tensor.grad().defined();
}

void DdpReducer::State::after_accumulation(std::size_t index) {
  const torch::NoGradGuard no_grad;
  std::unique_lock lock(mutex);
  Parameter& parameter = parameters[index];
  parameter.touched = true;
  if (is_local()) {
    const int graph = torch::autograd::get_current_graph_task_id();
    if (std::exchange(local_graph, graph) != graph) queue(&State::end_local_backward);
    return;
  }
  if (!in_pass) begin_pass();
  follow_backward();
  ++parameter.received;
  if (counts()) {
    received.push_back(index);
    return;
  }
  if (parameter.ready) {
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
  if (parameter.received < parameter.expected) return;
  mark_ready(index, true);
  lock.unlock();
  start_full_buckets();
}

void DdpReducer::State::end_local_backward() {
  const std::lock_guard lock(mutex);
  local_graph = -1;
  // The rest of an outer backward around this one is local, too.
  if (torch::autograd::get_current_node() == nullptr) local_is_over = true;
}

void DdpReducer::State::synchronize_behind(const std::vector<torch::Tensor>& outputs) {
  for (const torch::Tensor& output : outputs) {
    if (!output.defined() || output.grad_fn() == nullptr) continue;
    call_before(*output.grad_fn(), [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      const std::lock_guard lock(self->mutex);
      self->next_local = false;
    });
  }
}

void DdpReducer::State::Forward::take(const std::vector<torch::Tensor>& tensors, bool complete) {
  for (const torch::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.grad_fn()) outputs.push_back(weak_of(tensor.grad_fn()));
  result = complete && !outputs.empty() ? Result::kKnown : Result::kUnknown;
}

bool DdpReducer::State::Forward::is_dropped() const {
  if (result == Result::kNone) return true;
  return result == Result::kKnown &&
         std::all_of(outputs.begin(), outputs.end(),
                     [](const auto& output) { return output.expired(); });
}

void DdpReducer::State::begin_pass() {
  in_pass = true;
  step.go_on();
  step.skip(static_cast<std::uint64_t>(
      std::count_if(forwards.begin(), forwards.end(),
                    [](const Forward& forward) { return forward.is_dropped(); })));
  if (options.weigh_by_samples) attempt_together([&] { share.agree(prefix); });
  const bool known = options.static_graph && !users.empty();
  if (!known && !(searches() && leaves_known && !leaves_partial)) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool unused =
        known ? bool{never_used[i]} : !leaves.contains(parameters[i].tensor.unsafeGetTensorImpl());
    if (unused) mark_ready(i, false);
  }
}

void DdpReducer::State::follow_backward() {
  const int graph = torch::autograd::get_current_graph_task_id();
  if (std::find(graphs.begin(), graphs.end(), graph) != graphs.end()) return;
  enter(graph);
  queue(&State::end_backward);
}

void DdpReducer::State::put_gradient(Parameter& parameter, bool has_new) {
  BucketMemory& memory = buckets[parameter.bucket].memory;
  torch::Tensor& gradient = parameter.tensor.mutable_grad();
  check_unchanged(parameter);
  if (gradient.defined() && gradient.layout() != torch::kStrided) {
    raise(ErrorCode::kUnsupported,
          "the gradient of parameter '" + parameter.name +
              "' is sparse; make its embedding with dense gradients, or use "
              "DistributedOptimizer with sparse_as_dense");
  }
  refuse_graph("DistributedDataParallel", parameter.name, gradient);
  if (gradient.defined() && gradient.sizes() != parameter.layout.sizes()) {
    raise(ErrorCode::kInvalidArgument,
          fmt::format("DistributedDataParallel: the gradient of parameter '{}' has the sizes [{}], "
                      "but the parameter has [{}]",
                      parameter.name, fmt::join(gradient.sizes(), ", "),
                      fmt::join(parameter.layout.sizes(), ", ")));
  }
  // A gradient that stays unchanged if no rank brings a new one must survive the average.
  if (!has_new && gradient.defined()) parameter.earlier = gradient.clone();
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
  parameter.ready = true;
  order.push_back(index);
  attempt([&] {
    try {
      put_gradient(parameter, has_new);
    } catch (...) {
      missing[index] = 1;
      bucket.incomplete = true;
      throw;
    }
  });
  bucket.ready.add(parameter.tensor.device());
  if (--bucket.waiting == 0) full.push_back(parameter.bucket);
}

void DdpReducer::State::mark_received() {
  for (Parameter& parameter : parameters) parameter.expected = std::max(1, parameter.received);
  for (const std::size_t i : std::exchange(received, {}))
    if (--parameters[i].received == 0) mark_ready(i, true);
}

void DdpReducer::State::start_full_buckets() {
  while (true) {
    std::unique_lock lock(mutex);
    if (full.empty()) return;
    const std::size_t bucket = full.front();
    full.erase(full.begin());
    lock.unlock();
    attempt_together([&] { start(bucket); });
  }
}

void DdpReducer::State::send(Parameter& parameter) {
  const auto index = static_cast<std::size_t>(&parameter - parameters.data());
  torch::Tensor& gradient = parameter.tensor.mutable_grad();
  const bool absent = missing[index] != 0 || !gradient.defined();
  parameter.sent = absent ? parameter.layout.zeros(parameter.layout.options()) : gradient;
  // Autograd may have used a view of a buffer that another parameter's gradient views, too. If the
  // user has made such views, they stay.
  if (!absent && gradient.storage().use_count() > 1) {
    parameter.sent = gradient.clone();
    if (parameter.is_made) gradient = parameter.sent;
  }
  share.weigh(parameter.sent);
  parameter.work = start_allreduce(parameter.sent, parameter.sent,
                                   {.op = ReduceOp::kAverage, .name = full_name(index)}, absent);
}

void DdpReducer::State::start(std::size_t index) {
  Bucket& bucket = buckets[index];
  const StepScope scope = step.scope();
  bucket.ready.join();
  if (!bucket.memory.defined()) {
    for (const std::size_t i : bucket.members) send(parameters[i]);
    return;
  }
  const torch::Tensor& flat = bucket.memory.flat();
  share.weigh(flat);
  if (!hook) {
    bucket.work = start_allreduce(flat, flat, {.op = ReduceOp::kAverage, .name = bucket.name},
                                  bucket.incomplete);
    return;
  }
  GradBucket told{index, bucket.name, flat, bucket.memory.views(), {}, index + 1 == buckets.size()};
  for (const std::size_t i : bucket.members) told.parameters.push_back(parameters[i].tensor);
  call_hook(bucket, [&] { bucket.result = hook(told); });
}

void DdpReducer::State::call_hook(const Bucket& bucket, const std::function<void()>& call) {
  abort_on_failure(call, [&] {
    return "DistributedDataParallel: the communication hook has failed for bucket '" + bucket.name +
           "'";
  });
}

DdpReducer::DdpReducer(NamedTensors named, NamedTensors buffers, const DdpOptions& options)
    : state_(std::make_shared<State>()) {
  check_initialized("DistributedDataParallel");
  state_->number = NameNumber("ddp");
  state_->prefix = state_->number.prefix();
  state_->step = StepCount(ProcessSet());
  state_->options = options;
  check_module(state_->prefix, named, buffers, options);
  broadcast_packed(state_->prefix + "parameters/", agreed_on(named));
  state_->comparison.emplace(
      StateComparison::Options{"DistributedDataParallel",
                               state_->prefix,
                               {},
                               [state = state_.get()] { return state->reduced(); },
                               /*begins_equal=*/true});
  state_->buffers = agreed_on(buffers);
  if (options.broadcast_buffers) broadcast_packed(state_->prefix + "buffers/", state_->buffers);
  std::set<const c10::TensorImpl*> seen;  // a parameter may have several names
  for (auto& [name, tensor] : named) {
    state_->listed.insert({tensor.unsafeGetTensorImpl(), tensor.requires_grad()});
    if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    state_->parameters.emplace_back(AgreedTensor{name, tensor});
  }
  // Backward makes gradients roughly in the reverse of the modules' parameter order.
  std::vector<std::size_t> reverse;
  for (std::size_t i = state_->parameters.size(); i-- > 0;) reverse.push_back(i);
  state_->build(reverse);
  state_->reset_pass();
  for (std::size_t i = 0; i < state_->parameters.size(); ++i) {
    State::Parameter& parameter = state_->parameters[i];
    parameter.hooks = GradientHooks(parameter.tensor, state_->weak_from_this(), i);
  }
}

DdpReducer::~DdpReducer() {
  // Not during an exception, which one rank may have alone.
  if (state_->in_pass && std::uncaught_exceptions() == 0) {
    state_->end_interrupted();
  } else {
    state_->abandon();
  }
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
  state_->in_forward = false;
  if (!torch::GradMode::is_enabled()) return;
  State& state = *state_;
  if (state.in_pass) {
    state.end_interrupted();
    throw_job_failure();  // throws if the job's failure, not the user's exception, ended that
                          // backward
  }
  // A forward in eval() mode may be this rank's alone.
  const bool is_together = !state.local && module.is_training();
  state.owes_pass |= is_together;
  state.next_local = state.local && !state.owes_pass;
  state.local_is_over = false;
  state.in_eval = !state.local && !module.is_training();
  state.any_in_eval |= state.in_eval;
  if (is_together && state.options.broadcast_buffers)
    receive_buffers(state.prefix + "buffers/", state.buffers);
  // Within no_sync() the next forward outside detects it.
  if (state.local) return;
  std::exception_ptr why;
  try {
    if (std::string unknown = state.unknown_in(module); !unknown.empty())
      raise(ErrorCode::kInvalidArgument, std::move(unknown));
    if (!is_together) return;  // a backward, if there is one, detects changes
    for (const State::Parameter& parameter : state.parameters) State::check_unchanged(parameter);
    state.in_forward = true;
    state.forwards.emplace_back();
    return;
  } catch (const Exception&) {
    if (!is_together) throw;
    why = std::current_exception();
  }
  state.refuse_pass(why);
}

bool DdpReducer::wants_outputs() const {
  return torch::GradMode::is_enabled() &&
         (state_->in_forward || state_->in_eval || state_->wants_leaves());
}

void DdpReducer::after_forward(const std::vector<torch::Tensor>& outputs, bool complete) {
  if (std::exchange(state_->in_forward, false)) state_->forwards.back().take(outputs, complete);
  if (state_->in_eval) state_->synchronize_behind(outputs);
  if (!state_->wants_leaves()) return;
  state_->leaves_known = true;
  state_->leaves_partial |= !complete;
  add_leaves(outputs, state_->leaves);
}

bool DdpReducer::set_local(bool local) { return std::exchange(state_->local, local); }

void DdpReducer::set_sample_count(std::int64_t samples) {
  if (!state_->options.weigh_by_samples) {
    raise(ErrorCode::kInvalidArgument,
          "set_sample_count(): DistributedDataParallel was made without weigh_by_samples");
  }
  state_->share.tell(state_->prefix, samples);
}

void DdpReducer::register_comm_hook(CommHook hook) {
  if (!hook || state_->hook) {
    raise(ErrorCode::kInvalidArgument, hook ? "register_comm_hook(): there is one already"
                                            : "register_comm_hook(): it is empty");
  }
  state_->hook = std::move(hook);
  for (State::Bucket& bucket : state_->buckets) {
    if (bucket.memory.defined()) continue;
    std::vector<AgreedLayout> group;
    for (const std::size_t i : bucket.members) group.push_back(state_->parameters[i].layout);
    bucket.memory = BucketMemory(group);
  }
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
