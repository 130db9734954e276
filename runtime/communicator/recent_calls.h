// RecentCalls: what a rank has made of its latest calls of the ordered door, so that one which is
// over can still be compared with what another rank makes of it. Member of Group. Token holder
// only.
#pragma once

#include "runtime/base/ordered_call.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kolo {

class RecentCalls {
 public:
  void add(std::uint64_t sequence, std::uint64_t what) {
    OrderedCall& place = calls_[sequence % kKept];
    if (place.number <= sequence) place = {sequence + 1, what};  // calls end in any order
  }
  /// One that failed at once, and why.
  void add_refused(std::uint64_t sequence, std::string why) {
    add(sequence, kRefusedCall);
    refused_ = std::move(why);
  }
  /// Nothing of one that is too long ago, or was never made.
  std::optional<std::uint64_t> find(std::uint64_t sequence) const {
    const OrderedCall& call = calls_[sequence % kKept];
    return call.number == sequence + 1 ? std::optional(call.what) : std::nullopt;
  }

  /// kolo::clash_text(), with the reason where this rank's call failed at once.
  std::string clash_text(int rank, std::uint64_t what, int other, std::uint64_t others,
                         std::string_view suffix) const {
    std::string text = kolo::clash_text(rank, what, other, others, suffix);
    if (what == kRefusedCall)
      text += fmt::format("; the last that failed so on rank {}: {}", rank, refused_);
    return text;
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
  std::string refused_;  ///< why the last of them failed that failed at once
};

}  // namespace kolo
