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
    calls_[sequence % kKept] = {sequence + 1, what};
  }
  /// Nothing of one that is too long ago, or was never made.
  std::optional<std::uint64_t> find(std::uint64_t sequence) const {
    const OrderedCall& call = calls_[sequence % kKept];
    return call.number == sequence + 1 ? std::optional(call.what) : std::nullopt;
  }

 private:
  static constexpr std::size_t kKept = 64;
  std::array<OrderedCall, kKept> calls_ = {};
};

}  // namespace kolo
