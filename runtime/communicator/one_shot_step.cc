// OneShot: finding out that ranks are out of step, and what it says of itself. Apart from the
// exchange, whose loop never comes here while all goes well.
#include "runtime/base/check.h"
#include "runtime/communicator/one_shot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

namespace kolo {
namespace {

/// What the rank of a board has announced last; nothing while it does so.
std::optional<OrderedCall> announced_on(const Board& board) {
  const std::uint64_t number = board.announced.load(std::memory_order_acquire);
  // If this is newer than the number, then so is the number when it is read again: 0 at least.
  const std::uint64_t what = board.announced_what.load(std::memory_order_acquire);
  if (board.announced.load(std::memory_order_relaxed) != number) return std::nullopt;
  return OrderedCall{number, what};
}

/// What is in a slot; nothing while it changes.
std::optional<OrderedCall> call_in(const Board::Slot& slot) {
  const std::uint64_t flag = slot.line.flag.load(std::memory_order_acquire);
  const OrderedCall call{slot.line.number.load(std::memory_order_relaxed),
                         slot.line.what.load(std::memory_order_relaxed)};
  if (call.flag() != flag) return std::nullopt;
  return call;
}

}  // namespace

Error OneShot::mismatch(const OrderedCall& call, std::size_t rank, std::uint64_t what) const {
  return KOLO_ERROR(
      kMismatch, "{}",
      recent_calls_.clash_text(communicator_.world().rank(), call.what, communicator_.ranks()[rank],
                               what, communicator_.suffix()));
}

bool OneShot::was_refused(const OrderedCall& call) const {
  constexpr std::uint64_t kSequences = (std::uint64_t{1} << kSetShift) - 1;
  return call.number >> kSetShift == communicator_.id() && (call.number & kSequences) != 0 &&
         recent_calls_.find((call.number & kSequences) - 1) == kRefusedCall;
}

/// A rank whose flag does not come may be in another call, with a flag or without; or its last one
/// was a broadcast of its own, which failed at once here.
Status OneShot::check_waited_for(std::size_t rank) const {
  const auto exchanged = call_in(slot_of(rank));
  if (exchanged && exchanged->number == awaited().number && exchanged->what != awaited().what)
    return mismatch(awaited(), rank, exchanged->what);
  // All ranks have the same calls in the same slots, while they make the same calls.
  std::optional<OrderedCall> elsewhere;
  for (const Board::Slot& slot : boards_[rank]->slots) {
    const auto call = call_in(slot);
    if (!call) continue;
    if (was_refused(*call)) return mismatch({call->number, kRefusedCall}, rank, call->what);
    const bool is_later = call->number > awaited().number;
    if (&slot == &slot_of(rank) ? is_later : call->number == awaited().number) elsewhere = call;
  }
  // Behind the slots: what it has announced before is there by now.
  const auto other = announced_on(*boards_[rank]);
  if (other && other->number == awaited().number && !arrived(rank))
    return mismatch(awaited(), rank, other->what);
  if (elsewhere) {
    return KOLO_ERROR(
        kMismatch,
        "rank {} calls {}, and rank {} calls {}{}, but as another of its calls: one of "
        "them has left a call out, or one failed at once, for its arguments: {}",
        communicator_.world().rank(), to_text(awaited().what), communicator_.ranks()[rank],
        to_text(elsewhere->what), communicator_.suffix(), kSameCallsAdvice);
  }
  // What it announced later it does after its flag, which then has come by now.
  if (!other || other->number <= awaited().number || arrived(rank)) return {};
  return KOLO_ERROR(kMismatch, "rank {} calls {}, which rank {} has passed and calls {}{}: {}",
                    communicator_.world().rank(), to_text(awaited().what),
                    communicator_.ranks()[rank], to_text(other->what), communicator_.suffix(),
                    kSameCallsAdvice);
}

OrderedCall OneShot::announce(const Request& request) {
  if (boards_.empty()) return {};
  const OrderedCall call = call_of(request);
  Board& board = *boards_[own()];
  board.announced.store(0, std::memory_order_relaxed);
  board.announced_what.store(call.what, std::memory_order_release);
  board.announced.store(call.number, std::memory_order_release);
  return call;
}

Result<bool> OneShot::compare(const OrderedCall& call, std::size_t& next) const {
  for (; call.number != 0 && next < boards_.size(); ++next) {
    const Board& board = *boards_[next];
    const auto other = announced_on(board);
    if (other && other->number == call.number) {
      if (other->what != call.what) return mismatch(call, next, other->what);
      continue;
    }
    bool passed = other && other->number > call.number;
    for (const Board::Slot& slot : board.slots) {
      const auto exchanged = call_in(slot);
      if (!exchanged) continue;
      // Or it has declined that one, and will announce it.
      if (exchanged->number == call.number && exchanged->what != call.what)
        return mismatch(call, next, exchanged->what);
      passed |= exchanged->number >= call.number;
    }
    if (!passed) return false;
  }
  return true;
}

Status OneShot::look_back() const {
  if (busy_ || is_trade_ || all_seen_ || exchange_ == 0) return {};
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    const auto call = call_in(slot_of(rank));
    if (call && call->number == call_.number && call->what != call_.what)
      return mismatch(call_, rank, call->what);
  }
  return {};
}

std::string OneShot::describe() const {
  if (is_trade_) {
    return fmt::format("{} of {} as call {}{} waits for rank {}", algorithm(), to_text(call_.what),
                       request_.sequence, communicator_.suffix(), pair_.partner());
  }
  std::vector<int> missing;
  for (std::size_t rank = next_; busy_ && rank < end_; ++rank) {
    if (!arrived(rank)) missing.push_back(communicator_.ranks()[rank]);
  }
  return fmt::format("{} of {} as call {}{} waits for rank{} {}", algorithm(), to_text(call_.what),
                     request_.sequence, communicator_.suffix(), missing.size() == 1 ? "" : "s",
                     fmt::join(missing, ", "));
}

}  // namespace kolo
