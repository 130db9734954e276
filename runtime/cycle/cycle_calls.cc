// Detects mismatched ordered calls over messages. Where their messages meet, Tag::call shows the
// mismatch. This file handles calls that meet no message: ranks that wait for each other ask, and
// messages that are never received are found. Progress token holder.
#include "runtime/base/check.h"
#include "runtime/base/plain_bytes.h"
#include "runtime/cycle/cycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
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

/// Fingerprint of this rank's running or finished call of that number; nothing if it was too long
/// ago.
std::optional<std::uint64_t> own_call(const Group& group, std::uint64_t sequence) {
  const auto running =
      std::find_if(group.running.begin(), group.running.end(), [&](const auto& operation) {
        return operation->mode() == SubmissionMode::kInOrder && operation->sequence() == sequence;
      });
  return running != group.running.end() ? std::optional((*running)->call())
                                        : group.recent_calls.find(sequence);
}

}  // namespace

// An in-order call begins without asking the other ranks, so it cannot be undone: everything fails.
void Cycle::check_joined(Group& group) {
  const auto& joined = group.controller.joined();
  if (!joined || std::cmp_less_equal(group.calls(), joined->calls)) return;
  const auto own = own_call(group, static_cast<std::uint64_t>(joined->calls));
  note(KOLO_ERROR(
      kInvalidArgument,
      "rank {} calls {}{}, which all ranks must call, but rank {} has joined; join() after "
      "the last ordered call",
      world_.rank(), own ? to_text(*own) : "an ordered collective", group.communicator.suffix(),
      group.communicator.ranks()[static_cast<std::size_t>(joined->rank)]));
}

void Cycle::check_calls(Group& group, Clock::time_point now) {
  if (group.communicator.size() == 1) return;
  note(group.exchange.look_back());
  for (const auto& operation : group.running) {
    if (operation->mode() != SubmissionMode::kInOrder || operation->works_completed()) continue;
    ask_about(group, *operation, now);
    break;  // later calls wait for this one
  }
  check_messages(group);
}

void Cycle::check_messages(Group& group) {
  const std::vector<MessageKey> unclaimed = transport_.unclaimed();
  group.calls_before_look = unclaimed.size() / kMessagesPerCall;
  if (unclaimed.empty()) return;
  const std::uint32_t space = group.communicator.tag_space(SubmissionMode::kInOrder);
  const std::uint64_t done = group.done_below(SubmissionMode::kInOrder);
  for (const auto& [peer, tag] : unclaimed) {
    if (tag.communicator == space && tag.operation < done) refuse_message(group, peer, tag);
  }
}

void Cycle::ask_about(Group& group, const Operation& operation, Clock::time_point now) {
  Group::Asked& asked = group.asked;
  if (asked.sequence != operation.sequence()) asked = {operation.sequence(), 0};
  if (now - operation.started_at() < kFirstQuestion * (std::int64_t{1} << asked.times)) return;
  // Asks one rank after the other: if calls differ at all, they differ between two consecutive
  // ranks.
  const int size = group.communicator.size();
  const int first = (group.communicator.rank() + 1 + asked.times % (size - 1)) % size;
  ++asked.times;
  // In a large world, a rank that is not concerned() may have left without telling this one.
  int rank = first;
  while (rank == group.communicator.rank() ||
         !concerned(group.communicator.ranks()[static_cast<std::size_t>(rank)])) {
    rank = (rank + 1) % size;
    if (rank == first) return;
  }
  if (group.departures.contains(rank)) return;
  const Question question{operation.sequence(), operation.call()};
  note(group.control_plane.send(rank, MessageKind::kCall, bytes_of(question)));
}

Status Cycle::on_call_message(Group& group, int rank, const Message& message) {
  const auto question = value_of<Question>(message.payload);
  if (!question) {
    return KOLO_ERROR(kInternal, "rank {}: malformed question about a call from rank {}",
                      world_.rank(), rank);
  }
  const auto own = own_call(group, question->sequence);
  if (!own || *own == question->fingerprint) return {};
  return clash(group, *own, rank, question->fingerprint);
}

void Cycle::refuse_message(Group& group, int peer, const Tag& tag) {
  const auto own = group.recent_calls.find(tag.operation);
  const int rank = *group.communicator.index_of(peer);
  if (own && *own != tag.call) return note(clash(group, *own, rank, tag.call));
  note(KOLO_ERROR(kMismatch, "rank {}: nobody takes what rank {} has sent by {}{}: {}",
                  world_.rank(), peer, to_text(tag.call), group.communicator.suffix(),
                  kSameCallsAdvice));
}

Error Cycle::clash(const Group& group, std::uint64_t own, int rank, std::uint64_t others) const {
  return KOLO_ERROR(
      kMismatch, "{}",
      group.recent_calls.clash_text(world_.rank(), own,
                                    group.communicator.ranks()[static_cast<std::size_t>(rank)],
                                    others, group.communicator.suffix()));
}

}  // namespace kolo
