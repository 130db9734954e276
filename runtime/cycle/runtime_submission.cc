// Submission to the runtime: turns users' submissions into entries, and adds and removes process
// sets. Any thread.
#include "runtime/base/check.h"
#include "runtime/cycle/runtime.h"
#include "runtime/submission/prepare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace kolo {
namespace {

/// Why these ranks cannot be a process set; empty if they can.
std::string complaint_about(const std::vector<int>& sorted, int size) {
  const std::string list = fmt::format("[{}]", fmt::join(sorted, ", "));
  if (sorted.empty()) return "a process set needs a rank";
  if (sorted.front() < 0 || sorted.back() >= size)
    return fmt::format("ranks {} are not all ranks; those are 0 to {}", list, size - 1);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return fmt::format("ranks {} name a rank twice", list);
  return {};
}

/// An in-order call of `rank` of the world as a submission to the queue, in a process set of `size`
/// ranks.
Submission submission_of(const OrderedArguments& call, int rank, int size) {
  const bool in_parts =
      call.kind == OperationKind::kAlltoall || call.kind == OperationKind::kReduceScatter;
  Submission submission;
  submission.signature.kind = call.kind;
  submission.signature.type = call.type;
  submission.signature.op = call.op;
  submission.signature.root = call.root;
  submission.signature.shape = {call.count};
  // A row for each rank: the ranks that only receive know the size of theirs, too.
  if (call.kind == OperationKind::kScatter) submission.signature.shape = {size, call.count};
  if (in_parts && __builtin_mul_overflow(call.count, size, &submission.signature.shape.front()))
    submission.complaint = fmt::format(
        "{} elements for each of {} ranks are more than there are addresses", call.count, size);
  submission.input = call.input;
  submission.output = call.output;
  submission.process_set = call.process_set;
  const bool writes = call.kind != OperationKind::kGather || call.root == rank;
  if (submission.complaint.empty() && writes && call.output == nullptr && call.count > 0)
    submission.complaint = "the memory of the output is a null pointer";
  return submission;
}

Error is_retiring(const Group& group) {
  return KOLO_ERROR(kInvalidArgument,
                    "rank {}: process set {} is being removed, so nothing more may be called on it",
                    group.communicator().world().rank(), group.communicator().id());
}

}  // namespace

Result<EntryPtr> Runtime::make_entry(Submission&& submission) {
  auto entry = std::make_unique<Entry>(std::move(submission));
  if (entry->signature.kind == OperationKind::kJoin) entry->name = kJoinName;
  entry->work = std::allocate_shared<Work>(Recycled<Work>(), driver_);
  if (!moves_data(entry->signature.kind)) entry->stream.reset();
  if (entry->stream) KOLO_TRY(prepare_on_device(*entry));
  return entry;
}

Status Runtime::prepare_on_device(Entry& entry) const {
  entry.signature.on_device = true;
  if (nccl_.api != nullptr && entry.signature.kind == OperationKind::kAllreduce &&
      entry.complaint.empty()) {
    const auto reduction = nccl_reduction(entry.signature.type, entry.signature.op);
    if (!reduction.ok()) entry.complaint = reduction.error().message;
  }
  if (Accelerator* const accelerator = devices_.accelerator(); accelerator != nullptr) {
    auto ready = accelerator->record(entry.stream->handle);
    if (!ready.ok()) {
      Error error = std::move(ready).error();
      error.message = fmt::format("rank {}: {} '{}': {}", world().rank(),
                                  to_string(entry.signature.kind), entry.name, error.message);
      return error;
    }
    entry.ready = *std::move(ready);
  } else if (entry.complaint.empty()) {
    entry.complaint =
        fmt::format("the call gives a CUDA stream, but this rank has no CUDA device: {}",
                    devices_.no_accelerator());
  }
  return {};
}

Result<std::shared_ptr<Work>> Runtime::submit(Submission&& submission) {
  const std::uint32_t set = submission.process_set;
  const bool will_wait = submission.will_wait;
  KOLO_ASSIGN(EntryPtr entry, make_entry(std::move(submission)));
  std::shared_ptr<Work> work = entry->work;
  KOLO_TRY(submit_entries(std::span(&entry, 1), set, will_wait));
  return work;
}

Result<std::vector<std::shared_ptr<Work>>> Runtime::submit_group(
    std::vector<Submission> submissions, const std::string& group_name) {
  std::vector<std::shared_ptr<Work>> works;
  if (submissions.empty()) return works;
  const std::uint32_t set = submissions.front().process_set;
  const bool will_wait = submissions.front().will_wait;
  std::vector<EntryPtr> entries;
  for (Submission& submission : submissions) {
    KOLO_ASSIGN(EntryPtr entry, make_entry(std::move(submission)));
    works.push_back(entry->work);
    entries.push_back(std::move(entry));
  }
  if (!group_name.empty() || entries.size() > 1) {
    for (EntryPtr& entry : entries) {
      entry->signature.group = group_name;
      entry->signature.group_size = static_cast<int>(entries.size());
    }
  }
  KOLO_TRY(submit_entries(entries, set, will_wait));
  return works;
}

Status Runtime::submit_entries(std::span<EntryPtr> entries, std::uint32_t set, bool will_wait) {
  return groups_.with(set, [&](Group& group) -> Status {
    KOLO_TRY(check_member(group, *entries.front()));
    for (EntryPtr& entry : entries) {
      if (timeline_->on()) entry->submitted_at = std::chrono::steady_clock::now();
      prepare(*entry, group.communicator());
      if (finite_check_.on() && entry->complaint.empty())
        entry->complaint = finite_check_.look(*entry);
    }
    return group.table().submit(entries, will_wait);
  });
}

void Runtime::count_failed_unnamed(OperationKind kind, std::uint32_t set) {
  static_cast<void>(groups_.with(set, [kind](Group& group) -> Status {
    group.table().count_failed_unnamed(kind);
    return {};
  }));
}

Result<std::shared_ptr<Work>> Runtime::submit_message(Submission submission) {
  const bool sends = submission.signature.kind == OperationKind::kSend;
  const int peer = submission.signature.root;
  submission.name = fmt::format(
      "{} {} with tag {}", sends ? "to" : "from",
      !sends && peer == kAnyRank ? "any rank" : fmt::format("rank {}", peer), submission.tag);
  auto work = submit_in_order(std::move(submission));
  waker_.wake();  // also for one that is refused: its peer is told
  return work;
}

Result<std::shared_ptr<Work>> Runtime::submit_ordered(Submission submission) {
  submission.name = "(ordered)";
  return submit_in_order(std::move(submission));
}

Status Runtime::allreduce_ordered(const std::byte* input, std::byte* output, std::int64_t count,
                                  DataType type, ReduceOp op) {
  return call_ordered({.input = input, .output = output, .count = count, .type = type, .op = op});
}

std::shared_ptr<Driver> Runtime::driver_of_small_calls() const {
  const ExchangeLimits& limits = groups_.world().exchange().limits();
  const bool carries = limits.take(OperationKind::kAllreduce, 1) || limits.two_rank > 0;
  return carries && !finite_check_.on() ? driver_ : nullptr;
}

void Runtime::Leave::operator()(Group* group) const {
  group->lifetime.callers.fetch_sub(1, std::memory_order_release);
}

Result<Runtime::Within> Runtime::enter_set_of(const OrderedArguments& call) {
  Within within;
  if (call.process_set != 0) {  // the world always exists: no lock
    KOLO_TRY(groups_.with(call.process_set, [&](Group& group) -> Status {
      if (group.lifetime.retiring) return is_retiring(group);
      group.lifetime.callers.fetch_add(1, std::memory_order_relaxed);
      within.reset(&group);
      return {};
    }));
  }
  if (finite_check_.on()) KOLO_TRY(check_finite(call, within.get()));
  return within;
}

// The other ranks may be in the call, which has no name by which it could fail alone.
Status Runtime::check_finite(const OrderedArguments& call, const Group* within) {
  const Submission submission = submission_of(call, world().rank(), size_of_set(within));
  if (call.count <= 0 || !submission.complaint.empty()) return {};
  const std::string what = finite_check_.look(submission);
  if (what.empty()) return {};
  const Error error = KOLO_ERROR(kInvalidArgument, "rank {}: in-order {}: {}", world().rank(),
                                 to_string(call.kind), what);
  driver_->with_token([&] { cycle_.abort(error); });
  return error;
}

Status Runtime::call_ordered(const OrderedArguments& call) {
  KOLO_ASSIGN(auto within, enter_set_of(call));
  if (driver_->call(call)) return {};
  KOLO_ASSIGN(const auto work, enqueue_ordered(call, within.get(), nullptr));
  within.reset();
  return work->wait();
}

Status Runtime::queue_ordered(const OrderedArguments& call) {
  KOLO_ASSIGN(auto within, enter_set_of(call));
  KOLO_ASSIGN(const auto work, enqueue_ordered(call, within.get(), nullptr));
  within.reset();
  return work->wait();
}

Result<std::shared_ptr<Work>> Runtime::start_ordered(const OrderedArguments& call,
                                                     const KeepAlive& keep_alive) {
  KOLO_ASSIGN(const auto within, enter_set_of(call));
  if (call.will_wait ? driver_->call(call) : driver_->start_call(call))
    return (within ? *within : groups_.world()).done_call();
  KOLO_ASSIGN(auto work, enqueue_ordered(call, within.get(), keep_alive ? keep_alive() : nullptr));
  waker_.wake();
  return work;
}

Result<std::shared_ptr<Work>> Runtime::enqueue_ordered(const OrderedArguments& call,
                                                       const Group* within,
                                                       std::shared_ptr<const void> keep_alive) {
  Submission submission = submission_of(call, world().rank(), size_of_set(within));
  submission.keep_alive = std::move(keep_alive);
  return submit_ordered(std::move(submission));
}

Result<std::shared_ptr<Work>> Runtime::submit_in_order(Submission submission) {
  const std::uint32_t set = submission.process_set;
  KOLO_ASSIGN(EntryPtr entry, make_entry(std::move(submission)));
  std::shared_ptr<Work> work = entry->work;
  const bool is_message = kolo::is_message(*entry);
  std::optional<Error> refusal;
  const Status submitted = groups_.with(set, [&](Group& group) -> Status {
    KOLO_TRY(check_member(group, *entry));
    prepare(*entry, group.communicator());
    if (!entry->complaint.empty()) refusal = refusal_of(*entry, world().rank());
    // Nobody can be told of a message whose peer is no rank.
    if (refusal && is_message && !group.communicator().index_of(entry->signature.root))
      return *refusal;
    return group.ordered().submit(std::move(entry));
  });
  KOLO_TRY(submitted);
  if (!refusal) return work;
  // Not for another rank: only until the call has its number and is not in flight any more.
  if (!is_message) static_cast<void>(work->wait());
  return *std::move(refusal);
}

Status Runtime::check_member(const Group& group, const Entry& entry) const {
  if (group.is_member()) return group.lifetime.retiring ? Status(is_retiring(group)) : Status();
  const std::string name = entry.name.empty() ? "" : fmt::format(" '{}'", entry.name);
  return KOLO_ERROR(kInvalidArgument, "{}{}: rank {} is not in process set {}; its ranks are {}",
                    to_string(entry.signature.kind), name, world().rank(),
                    group.communicator().id(), fmt::join(group.communicator().ranks(), ", "));
}

Status Runtime::add_initial_process_sets(const std::vector<std::vector<int>>& sets) {
  for (std::vector<int> ranks : sets) {
    std::sort(ranks.begin(), ranks.end());
    const std::string complaint = complaint_about(ranks, world().size());
    if (!complaint.empty()) return KOLO_ERROR(kInvalidArgument, "process sets: {}", complaint);
    KOLO_TRY(groups_.add(ranks));
  }
  return {};
}

Result<std::shared_ptr<Work>> Runtime::add_process_set(std::vector<int> ranks, bool by_its_ranks) {
  std::sort(ranks.begin(), ranks.end());
  Submission submission;
  submission.name = fmt::format("kolo/add_process_set{} [{}]", by_its_ranks ? "_by_its_ranks" : "",
                                fmt::join(ranks, ", "));
  submission.signature.kind = OperationKind::kAddProcessSet;
  if (by_its_ranks) submission.signature.root = kByItsRanks;
  submission.signature.shape.assign(ranks.begin(), ranks.end());
  submission.complaint = complaint_about(ranks, world().size());
  return submit(std::move(submission));
}

Result<std::shared_ptr<Work>> Runtime::remove_process_set(std::uint32_t id, bool by_its_ranks) {
  Submission submission;
  submission.name =
      fmt::format("kolo/remove_process_set{} {}", by_its_ranks ? "_by_its_ranks" : "", id);
  submission.signature.kind = OperationKind::kRemoveProcessSet;
  submission.signature.root = static_cast<int>(id);
  KOLO_TRY(groups_.with(id, [&](Group& group) -> Status {
    if (id == 0) return {};
    if (by_its_ranks) {
      const std::vector<int>& ranks = group.communicator().ranks();
      submission.signature.shape.assign(ranks.begin(), ranks.end());
    }
    if (group.aborted()) {
      submission.complaint = fmt::format(
          "process set {} was aborted; it stays until kolo::shutdown(), as peers may still touch "
          "memory of its operations",
          id);
      return {};
    }
    const std::size_t in_flight = group.table().in_flight() +
                                  static_cast<std::size_t>(group.ordered().in_flight()) +
                                  static_cast<std::size_t>(group.lifetime.callers.load());
    if (in_flight > 0) {
      submission.complaint = fmt::format(
          "{} operations are in flight on process set {}; wait for them first", in_flight, id);
    } else {
      group.lifetime.retiring = true;  // until all ranks have agreed, or the removal fails
    }
    return {};
  }));
  return submit(std::move(submission));
}

Result<std::vector<int>> Runtime::ranks_of(std::uint32_t id) {
  return groups_.with(
      id, [](Group& group) -> Result<std::vector<int>> { return group.communicator().ranks(); });
}

}  // namespace kolo
