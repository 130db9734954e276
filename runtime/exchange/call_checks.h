// CallChecks: finds out, from the control segments, that ranks of a host make different in-order
// calls. A rank publishes each call there: with a flag if the exchange carries it, else by an
// announcement. Member of Exchange; token holder only.
#pragma once

#include "runtime/base/ordered_call.h"
#include "runtime/communicator/communicator.h"
#include "runtime/exchange/recent_calls.h"
#include "runtime/memory/control_segment.h"

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo {

class CallChecks {
 public:
  /// Bit of the process set's number in OrderedCall::number, above the call's own number.
  static constexpr int kSetShift = 44;

  CallChecks(const Communicator& communicator, const RecentCalls& recent_calls)
      : communicator_(communicator), recent_calls_(recent_calls) {}
  /// `segments`: by rank; without them, there is nothing to check.
  void open(std::vector<ControlSegment*> segments) { segments_ = std::move(segments); }

  /// Publishes a call that the exchange does not carry.
  OrderedCall announce(const OrderedCall& call);
  /// Compares an announced call with those of the ranks from `next` on. True once all ranks have
  /// announced the same call. kMismatch names both calls.
  Result<bool> compare(const OrderedCall& call, std::size_t& next) const;

  /// Finds out why a rank's flag of the call `awaited` does not come to `line` of its segment.
  /// kMismatch if the rank is in another call. `flag`: what is waited for there.
  Status check_waited_for(std::size_t rank, const OrderedCall& awaited,
                          const ControlSegment::Line& line,
                          const std::atomic<std::uint64_t>& flag) const;
  /// kMismatch if a rank has another call of the same number in that line.
  Status check_line(const OrderedCall& call, std::size_t rank,
                    const ControlSegment::Line& line) const;

 private:
  /// A call in the rank's lines that shows that the awaited one is another of its calls; kMismatch
  /// if they show another call in its place.
  Result<std::optional<OrderedCall>> find_elsewhere(std::size_t rank, const OrderedCall& awaited,
                                                    const ControlSegment::Line& awaited_line) const;
  Error mismatch(const OrderedCall& call, std::size_t rank, std::uint64_t fingerprint) const;
  /// Whether this rank refused that call of its own number.
  bool was_refused(const OrderedCall& call) const;

  const Communicator& communicator_;
  const RecentCalls& recent_calls_;
  std::vector<ControlSegment*> segments_;
};

}  // namespace kolo
