#include "runtime/exchange/call_checks.h"

#include "runtime/base/check.h"

#include <fmt/format.h>

#include <optional>

namespace kolo {
namespace {

/// The latest call that a rank has announced; nothing while the rank changes it.
std::optional<OrderedCall> announced_on(const ControlSegment& segment) {
  const std::uint64_t number = segment.announced.load(std::memory_order_acquire);
  // If the fingerprint is newer than the number, the second read of the number shows 0 or a newer
  // number.
  const std::uint64_t fingerprint = segment.announced_fingerprint.load(std::memory_order_acquire);
  if (segment.announced.load(std::memory_order_relaxed) != number) return std::nullopt;
  return OrderedCall{number, fingerprint};
}

/// The call in a line; nothing while the line changes.
std::optional<OrderedCall> call_in(const ControlSegment::Line& line) {
  const std::uint64_t flag = line.flag.load(std::memory_order_acquire);
  const OrderedCall call{line.number.load(std::memory_order_relaxed),
                         line.fingerprint.load(std::memory_order_relaxed)};
  if (call.flag() != flag) return std::nullopt;
  return call;
}

}  // namespace

Error CallChecks::mismatch(const OrderedCall& call, std::size_t rank,
                           std::uint64_t fingerprint) const {
  return KOLO_ERROR(
      kMismatch, "{}",
      recent_calls_.clash_text(communicator_.world().rank(), call.fingerprint,
                               communicator_.ranks()[rank], fingerprint, communicator_.suffix()));
}

bool CallChecks::was_refused(const OrderedCall& call) const {
  constexpr std::uint64_t kSequences = (std::uint64_t{1} << kSetShift) - 1;
  return call.number >> kSetShift == communicator_.id() && (call.number & kSequences) != 0 &&
         recent_calls_.find((call.number & kSequences) - 1) == kRefusedCall;
}

Result<std::optional<OrderedCall>> CallChecks::find_elsewhere(
    std::size_t rank, const OrderedCall& awaited, const ControlSegment::Line& awaited_line) const {
  const auto exchanged = call_in(awaited_line);
  if (exchanged && exchanged->number == awaited.number &&
      exchanged->fingerprint != awaited.fingerprint)
    return mismatch(awaited, rank, exchanged->fingerprint);
  // While ranks make the same calls, the same calls are in the same lines.
  std::optional<OrderedCall> elsewhere;
  for (std::size_t i = 0; i < ControlSegment::kLines; ++i) {
    const ControlSegment::Line& line = segments_[rank]->line(i);
    const auto call = call_in(line);
    if (!call) continue;
    if (was_refused(*call)) return mismatch({call->number, kRefusedCall}, rank, call->fingerprint);
    const bool is_later = call->number > awaited.number;
    if (&line == &awaited_line ? is_later : call->number == awaited.number) elsewhere = call;
  }
  return elsewhere;
}

/// Finds out why a rank's flag does not come. The rank may be in another call, exchanged or
/// announced. Or its latest call was a broadcast from itself, which failed at once on this rank.
Status CallChecks::check_waited_for(std::size_t rank, const OrderedCall& awaited,
                                    const ControlSegment::Line& awaited_line,
                                    const std::atomic<std::uint64_t>& flag) const {
  const auto has_arrived = [&] { return flag.load(std::memory_order_acquire) == awaited.flag(); };
  KOLO_ASSIGN(const auto elsewhere, find_elsewhere(rank, awaited, awaited_line));
  // Read after the lines, so that whatever the rank announced before is visible by now.
  const auto other = announced_on(*segments_[rank]);
  if (other && other->number == awaited.number && !has_arrived())
    return mismatch(awaited, rank, other->fingerprint);
  if (elsewhere) {
    return KOLO_ERROR(
        kMismatch,
        "rank {} calls {}, and rank {} calls {}{}, but as another of its calls: one of "
        "them has left a call out, or one failed at once, for its arguments: {}",
        communicator_.world().rank(), to_text(awaited.fingerprint), communicator_.ranks()[rank],
        to_text(elsewhere->fingerprint), communicator_.suffix(), kSameCallsAdvice);
  }
  // A later announcement follows the rank's flag, which would have arrived by now.
  if (!other || other->number <= awaited.number || has_arrived()) return {};
  return KOLO_ERROR(kMismatch, "rank {} calls {}, which rank {} has passed and calls {}{}: {}",
                    communicator_.world().rank(), to_text(awaited.fingerprint),
                    communicator_.ranks()[rank], to_text(other->fingerprint),
                    communicator_.suffix(), kSameCallsAdvice);
}

OrderedCall CallChecks::announce(const OrderedCall& call) {
  if (segments_.empty()) return {};
  ControlSegment& segment = *segments_[static_cast<std::size_t>(communicator_.rank())];
  segment.announced.store(0, std::memory_order_relaxed);
  segment.announced_fingerprint.store(call.fingerprint, std::memory_order_release);
  segment.announced.store(call.number, std::memory_order_release);
  return call;
}

Result<bool> CallChecks::compare(const OrderedCall& call, std::size_t& next) const {
  for (; call.number != 0 && next < segments_.size(); ++next) {
    ControlSegment& segment = *segments_[next];
    const auto other = announced_on(segment);
    if (other && other->number == call.number) {
      if (other->fingerprint != call.fingerprint) return mismatch(call, next, other->fingerprint);
      continue;
    }
    bool passed = other && other->number > call.number;
    for (std::size_t i = 0; i < ControlSegment::kLines; ++i) {
      const auto exchanged = call_in(segment.line(i));
      if (!exchanged) continue;
      // If the fingerprints are equal, the rank may have declined that call, and will announce it.
      if (exchanged->number == call.number && exchanged->fingerprint != call.fingerprint)
        return mismatch(call, next, exchanged->fingerprint);
      passed |= exchanged->number >= call.number;
    }
    if (!passed) return false;
  }
  return true;
}

Status CallChecks::check_line(const OrderedCall& call, std::size_t rank,
                              const ControlSegment::Line& line) const {
  const auto other = call_in(line);
  if (other && other->number == call.number && other->fingerprint != call.fingerprint)
    return mismatch(call, rank, other->fingerprint);
  return {};
}

}  // namespace kolo
