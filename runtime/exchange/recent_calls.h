// RecentCalls: fingerprints of a rank's latest in-order calls. A call that is over can still be
// compared with what another rank calls under its number. Member of Group. Token holder only.
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
  void add(std::uint64_t sequence, std::uint64_t fingerprint) {
    OrderedCall& slot = calls_[sequence % kKept];
    if (slot.number <= sequence) slot = {sequence + 1, fingerprint};  // calls end in any order
  }
  /// Adds a call that failed at once, and the reason.
  void add_refused(std::uint64_t sequence, std::string why) {
    add(sequence, kRefusedCall);
    refused_ = std::move(why);
  }
  /// Fingerprint of a call; nothing if the call is too old or was never made.
  std::optional<std::uint64_t> find(std::uint64_t sequence) const {
    const OrderedCall& call = calls_[sequence % kKept];
    return call.number == sequence + 1 ? std::optional(call.fingerprint) : std::nullopt;
  }

  /// kolo::clash_text(), with the reason where this rank's call failed at once.
  std::string clash_text(int rank, std::uint64_t fingerprint, int other, std::uint64_t others,
                         std::string_view suffix) const {
    std::string text = kolo::clash_text(rank, fingerprint, other, others, suffix);
    if (fingerprint == kRefusedCall)
      text += fmt::format("; the last that failed so on rank {}: {}", rank, refused_);
    return text;
  }

  /// Bit i is set if the call i + 1 before `end` is kept and failed at once.
  std::uint64_t refused_before(std::uint64_t end) const {
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < kKept && i < end; ++i)
      if (find(end - 1 - i) == kRefusedCall) refused |= std::uint64_t{1} << i;
    return refused;
  }

 private:
  static constexpr std::size_t kKept = 64;
  std::array<OrderedCall, kKept> calls_ = {};
  std::string refused_;  ///< reason of the latest call that failed at once
};

}  // namespace kolo
