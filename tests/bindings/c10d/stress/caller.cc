#include "tests/bindings/c10d/stress/caller.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace kolo::test {

using torch::Tensor;

void Begun::verify() const {
  for (std::size_t i = 0; i < checks.size(); ++i) {
    const Check& check = checks[i];
    std::string wrong = check.place->damage();
    if (wrong.empty() && (check.is_input() || !forgotten)) wrong = check.place->wrong(check.after);
    if (!wrong.empty())
      throw Wrong(fmt::format("{}: {} {}: {}", call.text(), check.is_input() ? "input" : "output",
                              i, wrong));
  }
}

Caller::Caller(const ProcessSet& set, std::uint64_t seed, std::uint64_t own_seed)
    : set_(set),
      groups_(1 + own_seed % 2),
      ranks_(set.ranks()),
      rank_(set.rank()),
      size_(set.size()),
      shared_(seed),
      dice_(own_seed),
      names_(seed) {
  for (std::size_t i = 0; i < groups_.size(); ++i) renew_group();
}

ProcessGroupKolo* Caller::group() {
  return groups_[static_cast<std::size_t>(dice_.below(std::ssize(groups_)))].get();
}

void Caller::renew_group() {
  const auto next = c10::make_intrusive<ProcessGroupKolo>(set_);
  if (next->getRank() != rank_ || next->getSize() != size_) throw Wrong("a group's rank or size");
  if (dice_.one_in(4)) next->setTimeout(std::chrono::milliseconds(1));
  std::rotate(groups_.begin(), groups_.begin() + 1, groups_.end());
  groups_.back() = next;
}

Tensor Caller::add(Begun& begun, const Part& part, const Tensor& before, const Tensor& after,
                   Form form) {
  Part placed = part;
  if (form == Form::kAny && dice_.one_in(4)) placed.sizes = {part.count()};
  auto place = std::make_shared<Place>(placed, form != Form::kContiguous, dice_);
  place->fill(before);
  begun.checks.push_back({place, before, after});
  return place->tensor();
}

Tensor Caller::add_input(Begun& begun, const Part& part, const Tensor& values, Form form) {
  return add(begun, part, values, values, form);
}

Tensor Caller::add_output(Begun& begun, const Part& part, const Tensor& values, Form form) {
  return add(begun, part, torch::zeros_like(values), values, form);
}

void Caller::wait_without_limit(const CallWork& work) {
  const bool is_bounded = dice_.one_in(3);
  while (true) {
    try {
      if (is_bounded) {
        work->wait(std::chrono::milliseconds(1));
      } else {
        work->wait();
      }
      return;
    } catch (const Exception& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
    }
  }
}

void Caller::await(const CallWork& work) {
  switch (dice_.below(5)) {
    case 0:
      while (!work->isCompleted()) std::this_thread::yield();
      break;
    case 1: {
      const auto future = work->getFuture();
      future->wait();
      if (future->hasError()) std::rethrow_exception(future->exception_ptr());
      if (!work->isCompleted()) throw Wrong("a work is not completed, though its future is");
      break;
    }
    case 2: {
      const std::jthread other([&] {
        while (!work->isCompleted()) std::this_thread::yield();
      });
      wait_without_limit(work);
      break;
    }
    default:
      wait_without_limit(work);
      break;
  }
  if (work->isSuccess()) return;
  if (work->exception() != nullptr) std::rethrow_exception(work->exception());
  throw Wrong("a work that was waited for neither succeeded nor failed");
}

void Caller::end_in_callback(const Begun& begun) {
  std::promise<void> verified;
  begun.works.front()->getFuture()->addCallback([&](c10::ivalue::Future& future) {
    try {
      if (future.hasError()) std::rethrow_exception(future.exception_ptr());
      begun.verify();
      verified.set_value();
    } catch (...) {
      verified.set_exception(std::current_exception());
    }
  });
  if (dice_.one_in(2)) wait_without_limit(begun.works.front());
  verified.get_future().get();
}

void Caller::end(Begun& begun) {
  if (begun.works.size() == 1 && !begun.fails && dice_.one_in(8)) return end_in_callback(begun);
  for (const auto& work : begun.works) {
    try {
      await(work);
    } catch (const Exception& error) {
      if (!begun.fails || error.code() != ErrorCode::kMismatch) throw;
      continue;
    }
    if (begun.fails) throw Wrong(begun.call.text() + ": did not fail");
  }
  for (const auto& work : begun.named) synchronize(*work);
  begun.verify();
}

void Caller::drop(Begun begun) {
  // Only in the world: after all handles are dropped, nobody knows when a set that is to be removed
  // has nothing in flight.
  begun.forgotten = set_.id() == 0 && !begun.works.empty() && dice_.one_in(3);
  for (const auto& work : begun.works)
    if (!begun.forgotten) (void)work->getFuture();
  begun.works.clear();
  dropped_.push_back(std::move(begun));
}

void Caller::run(int calls, const std::function<void(const std::string&)>& note) {
  const c10::InferenceMode inference(dice_.one_in(4));
  const auto end_any = [this] {
    std::swap(open_[static_cast<std::size_t>(dice_.below(std::ssize(open_)))], open_.back());
    Begun last = std::move(open_.back());
    open_.pop_back();
    end(last);
  };
  const int patience = dice_.one_in(3) ? 20 : 3;
  for (int i = 0; i < calls; ++i) {
    const Call call = draw_call(shared_, size_);
    note(fmt::format("call {} of {}: {}", i, calls, call.text()));
    if (dice_.one_in(40)) std::this_thread::sleep_for(std::chrono::microseconds(dice_.below(3000)));
    Begun begun = begin(call);
    // The group keeps the memory that it still reads.
    if (begun.named.empty() && dice_.one_in(4))
      std::erase_if(begun.checks, [](const Begun::Check& check) { return check.is_input(); });
    if (dice_.one_in(40)) renew_group();
    if (begun.named.empty() && !begun.fails && dice_.one_in(8)) {
      drop(std::move(begun));
    } else {
      open_.push_back(std::move(begun));
    }
    while (!open_.empty() && dice_.one_in(patience)) end_any();
  }
  note("the last waits");
  while (!open_.empty()) end_any();
  note("the end of the group");
  groups_.clear();
  for (const Begun& begun : dropped_) begun.verify();
}

Begun Caller::begin(const Call& call) {
  Begun begun{.call = call};
  switch (call.kind) {
    case Kind::kBroadcast:
    case Kind::kAllreduce:
    case Kind::kAllreduceCoalesced:
    case Kind::kReduce:
      begin_reduction(begun);
      break;
    case Kind::kAllgatherBase:
    case Kind::kAllgatherCoalesced:
    case Kind::kGatherSingle:
      begin_gathering(begun);
      break;
    case Kind::kAllgather:
    case Kind::kGather:
    case Kind::kScatter:
      begin_lists(begun);
      break;
    case Kind::kReduceScatter:
    case Kind::kReduceScatterBase:
    case Kind::kReduceScatterCoalesced:
      begin_reduce_scatter(begun);
      break;
    case Kind::kAlltoallBase:
      begin_alltoall_base(begun);
      break;
    case Kind::kAlltoall:
      begin_alltoall(begun);
      break;
    case Kind::kMessage:
      begin_message(begun);
      break;
    case Kind::kBarrier:
      begun.works = {group()->barrier()};
      break;
    case Kind::kOrdered:
      begin_ordered(begun);
      break;
    case Kind::kNamed:
      begin_named(begun);
      break;
    case Kind::kRefused:
      call_refused(begun);
      break;
  }
  return begun;
}

}  // namespace kolo::test
