// The end of a pass of DistributedDataParallel: the ranks exchange what they lack, wait, and get
// their gradients back.
#include "bindings/torch/gradients/ddp_agreement.h"
#include "bindings/torch/gradients/ddp_state.h"
#include "bindings/torch/gradients/parameter_names.h"
#include "bindings/torch/tensors/tensor_memory.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace kolo {

void DdpReducer::State::tell() {
  // Cells: number of ranks that use it, by parameter, if searched; number that lack or refuse one.
  std::vector<std::int32_t> cells;
  // A gradient that no_sync() accumulated does not count after zero_grad() cleared it.
  if (searches())
    for (const Parameter& parameter : parameters)
      cells.push_back(parameter.touched && parameter.tensor.grad().defined() ? 1 : 0);
  const auto& missing = pass.missing;
  const bool fails = pass.failure || std::find(missing.begin(), missing.end(), 1) != missing.end();
  cells.push_back(fails ? 1 : 0);
  EqualValues values;
  for (const auto& backward : backwards) values.append(backward->values());
  round.comparison().set_loss(std::move(values));
  round.tell(searches() ? "users" : "check", std::move(cells));
}

std::vector<std::int64_t> DdpReducer::State::hear_users() {
  const std::vector<std::int32_t> sums = round.hear();
  pass.everyone &= round.participants() == size();
  if (sums.back() > 0) pass.worsen(Course::kRefused);
  if (!searches()) return users;
  std::vector<std::int64_t> result(sums.begin(), sums.end() - 1);
  // A rank that has joined knows nothing of this pass, and searches in its next one.
  if (options.static_graph && pass.is_up_to(Course::kInterrupted) && pass.everyone) {
    users = result;
    for (const Parameter& parameter : parameters)
      never_used.push_back(!parameter.touched || !parameter.tensor.grad().defined());
  }
  return result;
}

void DdpReducer::State::await_buckets() {
  for (Bucket& bucket : buckets) {
    for (TensorWork& work : bucket.pass.works) {
      attempt_together([&] {
        wait_naming(
            bucket.name, [&] { return names_in(bucket); }, [&] { return work.wait(); });
        pass.everyone &= work.participants() == size();
      });
    }
    if (!bucket.pass.result) continue;
    attempt_together([&] {
      torch::Tensor result;
      call_hook(bucket, [&] { result = bucket.pass.result(); });
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

void DdpReducer::State::write_back(const std::vector<std::int64_t>& counts) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = parameters[i];
    const BucketMemory& memory = buckets[parameter.bucket].memory;
    const torch::Tensor& sent = parameter.pass.sent;
    const torch::Tensor& earlier = parameter.pass.earlier;
    torch::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!counts.empty() && counts[i] == 0) {
      if (earlier.defined()) gradient.copy_(earlier);
    } else if (!memory.defined()) {
      if (!gradient.defined()) {
        gradient = sent;
      } else if (!gradient.is_same(sent)) {
        gradient.copy_(sent);
      }
    } else if (options.gradient_as_bucket_view) {
      if (!gradient.defined()) gradient = memory.alias(parameter.position);
    } else {
      if (!gradient.defined()) gradient = parameter.zeros();
      gradient.copy_(memory.view(parameter.position));
    }
  }
}

void DdpReducer::State::rebuild() {
  const torch::Tensor agreed = pass.first_order.wait();
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

void DdpReducer::State::end_backward() {
  {
    const std::lock_guard lock(mutex);
    if (!pass.exists()) return leave();
    // The outer backward may bring missing gradients.
    if (Backward::is_inner() && !is_whole()) return follow_outer();
    if (counts()) mark_received();
  }
  const torch::NoGradGuard no_grad;
  mark_rest(!searches());
  // Travels together with the last buckets.
  if (pass.is_up_to(Course::kRefused)) attempt_together([&] { tell(); });
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
  if (pass.is_up_to(Course::kRefused)) {
    attempt_together([&] {
      counts = hear_users();
      if (pass.course == Course::kRefused)
        pass.all_missing = tell_missing(round.prefix(), pass.missing, pass.failure);
    });
  }
  // A failure that came too late to be part of anything that other ranks have learned.
  if (pass.failure && pass.is_up_to(Course::kInterrupted) && size() > 1)
    abort(failure_of([&] { std::rethrow_exception(pass.failure); }));
  if (pass.is_up_to(Course::kWhole)) write_back(counts);
  for (Parameter& parameter : parameters) parameter.touched = false;
  ++stats.synchronized_backwards;
  propose_order();
}

void DdpReducer::State::propose_order() {
  // A search may find another order each time.
  const bool steady = options.static_graph || !options.find_unused_parameters;
  // Ranks that have joined cannot take part in the agreement on the order.
  if (!pass.is_up_to(Course::kInterrupted) || !steady || !pass.everyone || stats.rebuilds > 0)
    return;
  attempt_together([&] {
    const std::vector<std::int64_t> seen(pass.order.begin(), pass.order.end());
    pass.first_order =
        broadcast_async_(torch::tensor(seen, torch::kInt64), 0, {.name = round.prefix() + "order"});
  });
}

void DdpReducer::State::settle() {
  const torch::NoGradGuard no_grad;
  if (pass.all_missing.valid())
    attempt_together([&] { raise_missing(pass.all_missing, reduced()); });
  if (pass.first_order.valid()) attempt_together([&] { rebuild(); });
  attempt_together([&] { round.settle(); });
  const std::exception_ptr thrown = pass.failure;
  reset_pass();
  if (thrown) std::rethrow_exception(thrown);
}

void DdpReducer::State::reset_pass() {
  // Operations cut off by a failure may still be under way, and the next pass uses their names.
  round.drop();
  pass.all_missing.drain();
  pass.first_order.drain();
  pass = {};
  pass.missing.assign(parameters.size(), 0);
  for (Parameter& parameter : parameters) parameter.pass = {};
  for (Bucket& bucket : buckets) {
    for (TensorWork& work : bucket.pass.works) work.drain();
    bucket.pass = {};
  }
  round.step().end();
  forwards.clear();
  leave();
}

void DdpReducer::State::end_interrupted() {
  const torch::NoGradGuard no_grad;
  FirstFailure known;  // ignored: the caller of that backward has already had its exception
  // As at the end of a backward, all reducers tell before one waits.
  std::vector<std::shared_ptr<State>> reducers;
  for (const auto& backward : backwards) {
    for (const auto& other : backward->rounds()) {
      const auto state = std::dynamic_pointer_cast<State>(other);
      if (state && std::find(reducers.begin(), reducers.end(), state) == reducers.end())
        reducers.push_back(state);
    }
  }
  for (const auto& state : reducers) known.attempt([&] { state->tell_interrupted(); });
  for (const auto& state : reducers) known.attempt([&] { state->take_results(); });
  for (const auto& state : reducers) {
    known.attempt([&] { state->settle(); });
    // Some gradients may have been cleared since, and then overwritten by operations under way.
    for (const Parameter& parameter : state->parameters) {
      torch::Tensor& gradient = parameter.tensor.mutable_grad();
      if (gradient.defined()) known.attempt([&] { gradient.zero_(); });
    }
  }
}

void DdpReducer::State::refuse_pass(const std::exception_ptr& why) {
  const torch::NoGradGuard no_grad;
  pass.failure = why;
  begin_pass();
  tell_interrupted();
  take_results();
  settle();
  std::rethrow_exception(why);
}

void DdpReducer::State::tell_interrupted() {
  pass.worsen(Course::kInterrupted);
  // A whole pass without a search or a hook is like the other ranks' pass, so it needs no error.
  if (!is_whole() || searches() || hook) {
    attempt([] {
      raise(ErrorCode::kInvalidArgument,
            "DistributedDataParallel: a backward has ended by an exception before all gradients "
            "were there, so this step has no averages on any rank");
    });
  }
  mark_rest(true);
  if (pass.is_up_to(Course::kRefused)) attempt_together([&] { tell(); });
}

}  // namespace kolo
