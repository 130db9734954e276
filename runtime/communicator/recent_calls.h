// RecentCalls: what a rank has made of its latest calls of the ordered door, so that one which is
// over can still be compared with what another rank makes of it. Member of Group. Token holder
// only.
#pragma once

#include "runtime/base/ordered_call.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace kolo {

class RecentCalls {
 public:
  void add(std::uint64_t sequence, std::uint64_t what) {
    OrderedCall& place = calls_[sequence % kKept];
    if (place.number <= sequence) place = {sequence + 1, what};  // calls end in any order
  }
  /// Nothing of one that is too long ago, or was never made.
  std::optional<std::uint64_t> find(std::uint64_t sequence) const {
    const OrderedCall& call = calls_[sequence % kKept];
    return call.number == sequence + 1 ? std::optional(call.what) : std::nullopt;
  }

  /// Bit i: the call i + 1 before `end` is kept, and failed at once.
  std::uint64_t refused_before(std::uint64_t end) const {
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < kKept && i < end; ++i)
      if (find(end - 1 - i) == kRefusedCall) refused |= std::uint64_t{1} << i;
    return refused;
  }

 private:
  static constexpr std::size_t kKept = 64;
  std::array<OrderedCall, kKept> calls_ = {};
};

}  // namespace kolo
