#include "runtime/cycle/call_audit.h"

#include "runtime/base/check.h"
#include "runtime/base/plain_bytes.h"
#include "runtime/cycle/group.h"
#include "runtime/cycle/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

/// A call that has waited this long asks another rank which call has its number there. It asks
/// again each time the waiting time has doubled, because ranks may be late for good reasons.
constexpr std::chrono::seconds kFirstQuestion{1};

/// Messages to look through for each call that ends: a late rank may have many to receive.
constexpr std::size_t kMessagesPerCall = 64;

struct Question {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;  ///< OrderedCall::fingerprint
};

}  // namespace

std::optional<std::uint64_t> CallAudit::own_call(std::uint64_t sequence) const {
  for (const auto& operation : group_.operations().running())
    if (operation->mode() == SubmissionMode::kInOrder && operation->sequence() == sequence)
      return operation->call();
  return group_.recent_calls().find(sequence);
}

// An in-order call begins without asking the other ranks, so it cannot be undone: everything fails.
void CallAudit::check_joined(CycleContext& context) const {
  const auto& joined = group_.controller().joined();
  if (!joined || std::cmp_less_equal(group_.calls(), joined->calls)) return;
  const auto own = own_call(static_cast<std::uint64_t>(joined->calls));
  const Communicator& communicator = group_.communicator();
  context.failures.note(KOLO_ERROR(
      kInvalidArgument,
      "rank {} calls {}{}, which all ranks must call, but rank {} has joined; join() after "
      "the last ordered call",
      communicator.world().rank(), own ? to_text(*own) : "an ordered collective",
      communicator.suffix(), communicator.ranks()[static_cast<std::size_t>(joined->rank)]));
}

void CallAudit::check(CycleContext& context, Clock::time_point now) {
  if (group_.communicator().size() == 1) return;
  context.failures.note(group_.exchange().look_back());
  for (const auto& operation : group_.operations().running()) {
    if (operation->mode() != SubmissionMode::kInOrder || operation->works_completed()) continue;
    ask_about(context, *operation, now);
    break;  // later calls wait for this one
  }
  check_messages(context);
}

void CallAudit::check_messages(CycleContext& context) {
  const std::vector<MessageKey> unclaimed = context.services.transport.unclaimed();
  calls_before_look_ = unclaimed.size() / kMessagesPerCall;
  if (unclaimed.empty()) return;
  const std::uint32_t space = group_.communicator().tag_space(SubmissionMode::kInOrder);
  const std::uint64_t done = group_.operations().done_below(SubmissionMode::kInOrder);
  for (const auto& [peer, tag] : unclaimed) {
    if (tag.communicator == space && tag.operation < done)
      context.failures.note(unreceived(peer, tag));
  }
}

void CallAudit::note_ended(CycleContext& context, std::size_t calls) {
  if (calls > calls_before_look_) check_messages(context);
  calls_before_look_ -= std::min(calls, calls_before_look_);
}

void CallAudit::ask_about(CycleContext& context, const Operation& operation,
                          Clock::time_point now) {
  if (std::exchange(asked_call_, operation.sequence()) != operation.sequence()) asked_ = 0;
  if (now - operation.started_at() < kFirstQuestion * (std::int64_t{1} << asked_)) return;
  // Asks one rank after the other: if calls differ at all, they differ between two consecutive
  // ranks.
  const Communicator& communicator = group_.communicator();
  const int size = communicator.size();
  const int first = (communicator.rank() + 1 + asked_ % (size - 1)) % size;
  ++asked_;
  // In a large world, a rank that is not concerned() may have left without telling this one.
  int rank = first;
  while (rank == communicator.rank() ||
         !context.peers.concerned(communicator.ranks()[static_cast<std::size_t>(rank)])) {
    rank = (rank + 1) % size;
    if (rank == first) return;
  }
  if (group_.departures().contains(rank)) return;
  const Question question{operation.sequence(), operation.call()};
  context.failures.note(group_.control_plane().send(rank, MessageKind::kCall, bytes_of(question)));
}

Status CallAudit::on_question(int rank, const Message& message) const {
  const auto question = value_of<Question>(message.payload);
  if (!question) {
    return KOLO_ERROR(kInternal, "rank {}: malformed question about a call from rank {}",
                      group_.communicator().world().rank(), rank);
  }
  const auto own = own_call(question->sequence);
  if (!own || *own == question->fingerprint) return {};
  return clash(*own, rank, question->fingerprint);
}

Error CallAudit::unreceived(int peer, const Tag& tag) const {
  const auto own = group_.recent_calls().find(tag.operation);
  const Communicator& communicator = group_.communicator();
  if (own && *own != tag.call) return clash(*own, *communicator.index_of(peer), tag.call);
  return KOLO_ERROR(kMismatch, "rank {}: nobody takes what rank {} has sent by {}{}: {}",
                    communicator.world().rank(), peer, to_text(tag.call), communicator.suffix(),
                    kSameCallsAdvice);
}

Error CallAudit::clash(std::uint64_t own, int rank, std::uint64_t others) const {
  const Communicator& communicator = group_.communicator();
  return KOLO_ERROR(
      kMismatch, "{}",
      group_.recent_calls().clash_text(communicator.world().rank(), own,
                                       communicator.ranks()[static_cast<std::size_t>(rank)], others,
                                       communicator.suffix()));
}

}  // namespace kolo
