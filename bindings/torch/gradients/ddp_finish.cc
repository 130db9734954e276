// The end of a pass of DistributedDataParallel: the ranks exchange what they lack, wait, and get
// their gradients back.
#include "bindings/torch/gradients/backward_callbacks.h"
#include "bindings/torch/gradients/backward_values.h"
#include "bindings/torch/gradients/ddp_agreement.h"
#include "bindings/torch/gradients/ddp_state.h"
#include "bindings/torch/tensors/failure.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <utility>

namespace kolo {

void DdpReducer::State::mark_rest(bool is_error) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].ready) continue;
    if (is_error) {
      missing[i] = 1;
      buckets[parameters[i].bucket].incomplete = true;
    }
    mark_ready(i, false);
  }
  start_full_buckets();
}

void DdpReducer::State::tell() {
  const std::size_t searched = searches() ? parameters.size() : 0;
  const torch::Tensor told = torch::zeros(
      {static_cast<std::int64_t>(searched + 1 + StateComparison::kCells)}, torch::kInt32);
  auto* const mine = told.mutable_data_ptr<std::int32_t>();
  // A gradient that no_sync() accumulated does not count after zero_grad() cleared it.
  for (std::size_t i = 0; i < searched; ++i)
    mine[i] = parameters[i].touched && parameters[i].tensor.grad().defined() ? 1 : 0;
  mine[searched] = failure || std::find(missing.begin(), missing.end(), 1) != missing.end();
  comparison->set_loss(backward_values(graphs));
  comparison->tell(mine + searched + 1);
  const StepScope scope = step.scope();
  agreement = allreduce_async_(told, {.name = prefix + (searches() ? "users" : "check")});
}

std::vector<std::int64_t> DdpReducer::State::hear_users() {
  const torch::Tensor sum = await(agreement);
  const auto* const counts = sum.const_data_ptr<std::int32_t>();
  const std::size_t searched = searches() ? parameters.size() : 0;
  some_failed = counts[searched] > 0;
  comparison->hear(counts + searched + 1, agreement.participants());
  if (!searches()) return users;
  std::vector<std::int64_t> result(counts, counts + searched);
  // A rank that has joined knows nothing of this pass, and searches in its next one.
  if (options.static_graph && !some_failed && everyone) {
    users = result;
    for (const Parameter& parameter : parameters)
      never_used.push_back(!parameter.touched || !parameter.tensor.grad().defined());
  }
  return result;
}

torch::Tensor DdpReducer::State::await(TensorWork& work) {
  torch::Tensor result = work.wait();
  everyone &= work.participants() == size();
  return result;
}

void DdpReducer::State::raise_out_of_step(const OutOfStep& error) {
  step.catch_up(error.latest());
  raise(error.code(),
        std::string("DistributedDataParallel: ") + error.what() +
            ". A training forward counts, too, where its output is dropped before a "
            "backward: evaluate in eval() or without grad mode. This step's gradients "
            "are of no use; go on with zero_grad()");
}

void DdpReducer::State::await_buckets() {
  for (Parameter& parameter : parameters) {
    if (parameter.work.valid()) attempt_together([&] { await(parameter.work); });
  }
  for (Bucket& bucket : buckets) {
    if (bucket.work.valid()) attempt_together([&] { await(bucket.work); });
    if (!bucket.result) continue;
    attempt_together([&] {
      torch::Tensor result;
      call_hook(bucket, [&] { result = bucket.result(); });
      torch::Tensor flat = bucket.memory.flat();
      if (!result.defined() || result.sizes() != flat.sizes() ||
          result.scalar_type() != flat.scalar_type()) {
        raise(ErrorCode::kInvalidArgument, "the communication hook's result for bucket " +
                                               bucket.name +
                                               " differs from its buffer in size or type");
      }
      if (result.const_data_ptr() != flat.const_data_ptr()) flat.copy_(result);
    });
  }
}

std::vector<std::string> DdpReducer::State::names() const {
  std::vector<std::string> all;
  for (const Parameter& parameter : parameters) all.push_back(parameter.name);
  return all;
}

NamedTensors DdpReducer::State::reduced() const {
  NamedTensors named;
  for (const Parameter& parameter : parameters)
    named.emplace_back(parameter.name, parameter.tensor);
  return named;
}

void DdpReducer::State::write_back(const std::vector<std::int64_t>& counts) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = parameters[i];
    const BucketMemory& memory = buckets[parameter.bucket].memory;
    torch::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!counts.empty() && counts[i] == 0) {
      if (parameter.earlier.defined()) gradient.copy_(parameter.earlier);
    } else if (!memory.defined()) {
      if (!gradient.defined()) {
        gradient = parameter.sent;
      } else if (!gradient.is_same(parameter.sent)) {
        gradient.copy_(parameter.sent);
      }
    } else if (options.gradient_as_bucket_view) {
      if (!gradient.defined()) gradient = memory.alias(parameter.position);
    } else if (gradient.defined()) {
      gradient.copy_(memory.view(parameter.position));
    } else {
      gradient = memory.view(parameter.position).clone();
    }
  }
}

void DdpReducer::State::tell_order() {
  const std::vector<std::int64_t> seen(order.begin(), order.end());
  first_order = broadcast_async_(torch::tensor(seen, torch::kInt64), 0, {.name = prefix + "order"});
}

void DdpReducer::State::rebuild() {
  const torch::Tensor agreed = first_order.wait();
  const auto* const first = agreed.const_data_ptr<std::int64_t>();
  const std::vector<std::size_t> in_order(first, first + agreed.numel());
  ++stats.rebuilds;
  build(in_order);
  if (!options.gradient_as_bucket_view) return;
  for (Parameter& parameter : parameters) {
    torch::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    buckets[parameter.bucket].memory.copy_in(parameter.position, gradient);
    gradient = buckets[parameter.bucket].memory.alias(parameter.position);
  }
}

void DdpReducer::State::queue(void (State::*next)()) {
  queue_backward_callback([weak = weak_from_this(), next] {
    if (const auto self = weak.lock()) (self.get()->*next)();
  });
}

void DdpReducer::State::end_backward() {
  {
    const std::lock_guard lock(mutex);
    if (!in_pass) return;
    // Within another backward, missing gradients may come with the rest of that backward.
    const bool is_inner = static_cast<bool>(torch::autograd::get_current_node());
    if (is_inner && !is_whole()) {
      call_in_outer_backward([weak = weak_from_this()] {
        const auto self = weak.lock();
        if (!self) return;
        const std::lock_guard lock_of_outer(self->mutex);
        if (self->in_pass) self->follow_backward();
      });
      return;
    }
    if (counts()) mark_received();
  }
  const torch::NoGradGuard no_grad;
  mark_rest(!searches());
  // Travels together with the last buckets.
  if (!severed) attempt_together([&] { tell(); });
  queue(&State::hear);
}

void DdpReducer::State::hear() {
  take_results();
  queue(&State::settle);
}

void DdpReducer::State::take_results() {
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> counts;
  await_buckets();
  if (!severed) {
    attempt_together([&] {
      counts = hear_users();
      if (some_failed) all_missing = tell_missing(prefix, missing, failure);
    });
  }
  // The failure came too late to be part of anything that other ranks have learned.
  if (failure && !severed && !some_failed && size() > 1)
    abort(failure_of([&] { std::rethrow_exception(failure); }));
  if (!severed && !some_failed && !interrupted) write_back(counts);
  for (Parameter& parameter : parameters) parameter.touched = false;
  ++stats.synchronized_backwards;
  // A search may find another order each time.
  const bool steady = options.static_graph || !options.find_unused_parameters;
  // Ranks that have joined cannot take part in the agreement on the order.
  if (!severed && !some_failed && steady && everyone && stats.rebuilds == 0)
    attempt_together([&] { tell_order(); });
}

void DdpReducer::State::settle() {
  const torch::NoGradGuard no_grad;
  if (all_missing.valid()) attempt_together([&] { raise_missing(all_missing, names()); });
  if (first_order.valid()) attempt_together([&] { rebuild(); });
  attempt_together([&] { comparison->settle(); });
  // Operations cut off by a failure may still be under way, and the next pass uses their names.
  drain_agreements();
  const std::exception_ptr thrown = failure;
  reset_pass();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace kolo
