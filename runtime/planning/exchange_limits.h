// ExchangeLimits: which in-order calls the exchange over control segments carries, and in how many
// hops. A value that every rank of a process set computes from the same numbers, and must. Computed
// when the windows are open; read by route(), by the exchange and by the driver's quick path.
#pragma once

#include "runtime/base/operation_kind.h"
#include "runtime/planning/thresholds.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kolo {

/// Which exchange KOLO_ALGORITHM gives to in-order all-reduces that fit into it. kTwoRankOnly: none
/// where ranks share control segments.
enum class ExchangeUse : std::uint8_t { kNone, kTwoRankOnly, kByCost, kOneShot, kTwoShot };

inline ExchangeUse exchange_use(std::string_view algorithm) {
  if (algorithm == "auto") return ExchangeUse::kByCost;
  if (algorithm == "one_shot") return ExchangeUse::kOneShot;
  if (algorithm == "two_shot") return ExchangeUse::kTwoShot;
  if (algorithm == "mapped") return ExchangeUse::kTwoRankOnly;
  return ExchangeUse::kNone;
}

struct ExchangeLimits {
  std::size_t ranks = 0;     ///< 0: the process set shares no control segments
  bool allreduces = false;   ///< the exchange carries all-reduces
  bool has_cores = false;    ///< each of several ranks has a core of its own
  std::size_t one_shot = 0;  ///< bytes of the largest all-reduce in one hop
  std::size_t staged = 0;    ///< bytes of the largest input that fits into control segments
  /// Bytes of the largest all-reduce whose input passes through control segments; at most `staged`.
  std::size_t copied = 0;
  std::size_t in_arena = 0;  ///< bytes of the largest all-reduce of memory in the arena
  std::size_t two_rank = 0;  ///< bytes of the largest all-reduce by the two-rank exchange
  /// Bytes of the least all-reduce that takes two hops where all ranks' memory lies in the arena.
  std::size_t two_shot_in_arena = SIZE_MAX;

  /// Whether the exchange carries a call with `bytes` of input on each rank. It may still decline
  /// an all-reduce above `copied`: Exchange::tries().
  bool take(OperationKind kind, std::size_t bytes) const {
    if (ranks == 0) return false;
    if (kind == OperationKind::kAllreduce) return allreduces && bytes <= in_arena;
    return bytes <= staged && is_ordered_kind(kind);
  }

  /// Whether the two-rank exchange carries the call of a caller that waits.
  bool take_two_rank(OperationKind kind, std::size_t bytes) const {
    return kind == OperationKind::kAllreduce && bytes > 0 && bytes <= two_rank;
  }

  /// Whether an all-reduce takes two hops only where all ranks' memory lies in the arena, so that
  /// ranks tell each other where theirs lies.
  bool depends_on_arena(OperationKind kind, std::size_t bytes) const {
    return kind == OperationKind::kAllreduce && bytes <= one_shot && bytes >= two_shot_in_arena;
  }
};

/// Ranks that share no control segments.
inline ExchangeLimits limits_without_segments(std::size_t ranks, ExchangeUse use) {
  const bool allreduces = use != ExchangeUse::kNone;
  return {.allreduces = allreduces,
          .two_rank = allreduces && ranks == 2 ? thresholds::kTwoRankExchange : 0};
}

/// `ranks` ranks of one host that map each other's control segments.
inline ExchangeLimits exchange_limits(std::size_t ranks, bool has_core_for_each, ExchangeUse use) {
  using namespace thresholds;
  const bool has_cores = ranks > 1 && has_core_for_each;
  const std::size_t all = ranks > 2 && has_core_for_each ? kOneShotWithCores : kOneShot;
  ExchangeLimits limits{.ranks = ranks,
                        .allreduces = use > ExchangeUse::kTwoRankOnly,
                        .has_cores = has_cores,
                        .one_shot = std::min(kExchange, all / ranks)};
  limits.staged = ranks > 1 ? kExchange : limits.one_shot;
  limits.copied = limits.staged;
  limits.in_arena = ranks > 1 ? kExchangeInArena : limits.one_shot;
  limits.two_shot_in_arena = has_cores ? kTwoShotInArena : kTwoShotWithoutCores;
  if (use == ExchangeUse::kTwoShot && ranks > 1) limits.one_shot = 0;
  if (use == ExchangeUse::kOneShot) {
    limits.one_shot = limits.in_arena = limits.staged;
    limits.two_shot_in_arena = SIZE_MAX;
  }
  return limits;
}

}  // namespace kolo
