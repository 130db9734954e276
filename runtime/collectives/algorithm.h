// The algorithms of all-reduce by name, and what each costs. Pure values and functions; every rank
// computes the same from the same numbers, and must.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kolo {

enum class Algorithm : std::uint8_t {
  kMapped,             ///< one pass over memory that all ranks have mapped
  kRing,               ///< 2(p−1) messages, least bytes, pipelined
  kRecursiveDoubling,  ///< log₂ p messages of the whole length
  kHalvingDoubling,    ///< 2·log₂ p messages, least bytes
};
inline constexpr Algorithm kAlgorithms[] = {Algorithm::kMapped, Algorithm::kRing,
                                            Algorithm::kRecursiveDoubling,
                                            Algorithm::kHalvingDoubling};

/// "mapped", "ring", "recursive_doubling", "halving_doubling": the words of KOLO_ALGORITHM.
std::string_view to_string(Algorithm algorithm);
/// Nothing for "auto" and for words that are no algorithm.
std::optional<Algorithm> algorithm_of(std::string_view name);

/// What moving and summing bytes takes: Hockney's model with a term for the sum ("The communication
/// challenge for MPP", Parallel Computing 1994).
struct LinkCost {
  double latency_us = 0;          ///< of a message without bytes, from one rank to another
  double us_per_byte = 0;         ///< of a message, beside its latency
  double reduce_us_per_byte = 0;  ///< of a sum of two
};

/// Microseconds of an all-reduce of `bytes` bytes over messages; not of kMapped.
double price(Algorithm algorithm, int size, std::uint64_t bytes, const LinkCost& link);

/// What the choice of an all-reduce's algorithm depends on, besides its bytes. Alike on all ranks.
struct AllreducePolicy {
  int size = 1;
  bool can_map = false;  ///< kMapped is possible
  LinkCost link = {};    ///< of the slowest link that it takes
  std::optional<Algorithm> forced = {};
  bool deterministic = false;

  /// The forced one if it is possible; else kMapped; else the cheapest.
  Algorithm choose(std::uint64_t bytes) const;
};

/// The cheapest algorithm over messages. With `deterministic`, among those whose sums have the same
/// order for every element, whatever it is fused with.
Algorithm cheapest(int size, std::uint64_t bytes, const LinkCost& link, bool deterministic);

}  // namespace kolo
