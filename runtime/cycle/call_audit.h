// CallAudit: finds that ranks of a process set make different in-order calls. Where their messages
// meet, Tag::call shows it. This class handles what meets no message: ranks that wait for each
// other ask, and messages that are never received are found. Member of Group; token holder only.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/cycle/context.h"
#include "runtime/exchange/recent_calls.h"
#include "transport/tag.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kolo {

class Group;
class Operation;

class CallAudit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit CallAudit(Group& group) : group_(group) {}

  /// Fails if this rank has made an in-order call that a joined rank will not make.
  void check_joined(CycleContext& context) const;
  /// From time to time: asks about a call that waits, and looks for messages.
  void check(CycleContext& context, Clock::time_point now);
  /// Fails if a message was never received although its call is over here.
  void check_messages(CycleContext& context);
  /// So many calls have ended; now and then looks for messages.
  void note_ended(CycleContext& context, std::size_t calls);
  /// Another rank asks about a call. kMismatch if this rank makes another one of that number.
  Status on_question(int rank, const Message& message) const;

 private:
  void ask_about(CycleContext& context, const Operation& operation, Clock::time_point now);
  Error unreceived(int peer, const Tag& tag) const;
  /// Fingerprint of this rank's running or finished call of that number; nothing if it was too long
  /// ago.
  std::optional<std::uint64_t> own_call(std::uint64_t sequence) const;
  /// `own` and `others`: OrderedCall::fingerprint of this rank and of the group's `rank`.
  Error clash(std::uint64_t own, int rank, std::uint64_t others) const;

  Group& group_;
  std::uint64_t asked_call_ = 0;  ///< the call that was asked about last
  int asked_ = 0;                 ///< how often
  /// Calls that may end before messages are looked through again. The timed check comes
  /// regardless.
  std::size_t calls_before_look_ = 0;
};

}  // namespace kolo
