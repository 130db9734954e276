// The algorithms of all-reduce by name, and what each costs. Pure values and functions; every rank
// computes the same from the same numbers, and must.
#pragma once

#include "runtime/collectives/host_layout.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kolo {

enum class Algorithm : std::uint8_t {
  kMapped,             ///< one pass over memory that all ranks have mapped
  kRing,               ///< 2(p−1) messages, least bytes, pipelined
  kBidirectionalRing,  ///< the ring, every other block the other way round
  kRecursiveDoubling,  ///< log₂ p messages of the whole length
  kHalvingDoubling,    ///< 2·log₂ p messages, least bytes
  kDoubleTree,         ///< two binary trees, a half each, pipelined
  kHierarchical,       ///< inside each host, across hosts, inside each host
};
inline constexpr Algorithm kAlgorithms[] = {Algorithm::kMapped,
                                            Algorithm::kRing,
                                            Algorithm::kBidirectionalRing,
                                            Algorithm::kRecursiveDoubling,
                                            Algorithm::kHalvingDoubling,
                                            Algorithm::kDoubleTree,
                                            Algorithm::kHierarchical};

/// "mapped", "ring", "bidirectional_ring", "recursive_doubling", "halving_doubling", "double_tree",
/// "hierarchical": the words of KOLO_ALGORITHM.
std::string_view to_string(Algorithm algorithm);
/// Nothing for "auto" and for words that are no algorithm.
std::optional<Algorithm> algorithm_of(std::string_view name);

/// What moving and summing bytes takes: Hockney's model ("The communication challenge for MPP",
/// Parallel Computing 1994) with a term for the sum, and in two pieces.
struct LinkCost {
  double latency_us = 0;          ///< of a message without bytes, from one rank to another
  double us_per_byte = 0;         ///< of a message, beside its latency
  double reduce_us_per_byte = 0;  ///< of a sum of two
  /// Of a round in which all ranks send such a message at once, divided by their number. More than
  /// latency_us / ranks where they share cores: a round takes its messages' sum of it, or the
  /// latency, whichever is more.
  double crowd_us = 0;
  /// How much sooner than these say a message of kShortMessage bytes, or the beginning of a longer
  /// one, arrives; of a shorter one in proportion. Links let bursts through, and hide some bytes
  /// behind their latency.
  double early_us = 0;

  static constexpr double kShortMessage = 4096;  ///< bytes
  /// Microseconds of a message's bytes, beside its latency.
  double bytes_us(double bytes) const {
    return bytes * us_per_byte - std::min(bytes / kShortMessage, 1.0) * early_us;
  }
};
/// What a LinkCost consists of, in the order in which it is stored and sent.
inline constexpr double LinkCost::*kLinkCostNumbers[] = {
    &LinkCost::latency_us, &LinkCost::us_per_byte, &LinkCost::reduce_us_per_byte,
    &LinkCost::crowd_us, &LinkCost::early_us};

/// What an all-reduce takes its way through. Alike on all ranks.
struct Network {
  HostLayout layout;
  LinkCost inside = {};            ///< between ranks of one host
  LinkCost across = {};            ///< between hosts, for one pair: a host's ranks share its link
  std::uint64_t window_bytes = 0;  ///< that the ranks of every host have mapped; 0: none
};

/// Chunks of kDoubleTree: so many that they fill its trees, if they are not too short then.
std::uint64_t tree_chunk(int size, std::uint64_t count, std::uint64_t largest);

/// Microseconds of an all-reduce of `bytes` bytes over messages; not of kMapped. Partial sums
/// travel as so many times the bytes of inputs and results: 2 of half types, else 1.
double price(Algorithm algorithm, const Network& network, std::uint64_t bytes,
             double partial_width = 1);

/// What the choice of an all-reduce's algorithm depends on, besides its bytes. Alike on all ranks.
struct AllreducePolicy {
  Network network = {};
  bool can_map = false;  ///< kMapped is possible
  /// Up to which two ranks are free to trade their vectors (PairExchange), so that any other
  /// algorithm is out of the question: that is what kRecursiveDoubling sends.
  std::uint64_t traded_bytes = 0;
  std::optional<Algorithm> forced = {};
  bool deterministic = false;

  /// The forced one if it is possible; else kMapped; else what two ranks trade; else the cheapest.
  Algorithm choose(std::uint64_t bytes, double partial_width = 1) const;
};

/// The cheapest algorithm over messages. With `deterministic`, among those whose sums have the same
/// order for every element, whatever it is fused with.
Algorithm cheapest(const Network& network, std::uint64_t bytes, bool deterministic,
                   double partial_width = 1);

}  // namespace kolo
