// The algorithms of all-reduce by name, and the cost model that prices them. Pure values and
// functions. All ranks must compute the same result from the same numbers.
#pragma once

#include "runtime/topology/host_layout.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kolo {

enum class Algorithm : std::uint8_t {
  kMapped,             ///< one pass over memory that all ranks have mapped
  kRing,               ///< 2(p−1) messages, least bytes, pipelined
  kBidirectionalRing,  ///< the ring; every other block runs in the opposite direction
  kRecursiveDoubling,  ///< log₂ p messages of the whole vector
  kHalvingDoubling,    ///< 2·log₂ p messages, least bytes
  kDoubleTree,         ///< two binary trees, each for half of the vector, pipelined
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
/// "hierarchical": the values of KOLO_ALGORITHM.
std::string_view to_string(Algorithm algorithm);
/// Returns nothing for "auto" and for a word that names no algorithm.
std::optional<Algorithm> algorithm_of(std::string_view name);

/// The time to move and to sum bytes. Based on Hockney's model ("The communication challenge for
/// MPP", Parallel Computing 1994), with a term for sums and a shorter time for short messages.
struct LinkCost {
  double latency_us = 0;          ///< time of an empty message from one rank to another
  double us_per_byte = 0;         ///< time per byte of a message, beside its latency
  double reduce_us_per_byte = 0;  ///< time per byte to sum two operands
  /// Time of a round in which all ranks send an empty message at once, divided by the number of
  /// ranks. Ranks that share cores need more than latency_us / ranks. A round of n messages takes
  /// max(latency_us, n × crowd_us).
  double crowd_us = 0;
  /// A message of kShortMessage bytes arrives this much sooner than the fields above predict, and
  /// so does the beginning of a longer one; a shorter one in proportion. Links let bursts through
  /// and hide some bytes behind their latency.
  double early_us = 0;

  static constexpr double kShortMessage = 4096;  ///< bytes
  /// Microseconds that a message's bytes add to its latency.
  double bytes_us(double bytes) const {
    return bytes * us_per_byte - std::min(bytes / kShortMessage, 1.0) * early_us;
  }
};
/// The numbers of a LinkCost, in the order in which they are stored and sent.
inline constexpr double LinkCost::*kLinkCostNumbers[] = {
    &LinkCost::latency_us, &LinkCost::us_per_byte, &LinkCost::reduce_us_per_byte,
    &LinkCost::crowd_us, &LinkCost::early_us};

/// The hosts and links that an all-reduce runs over. The same on all ranks.
struct Network {
  HostLayout layout;
  LinkCost inside = {};  ///< between ranks of one host
  LinkCost across = {};  ///< between one pair of hosts; all ranks of a host share its link
  std::uint64_t window_bytes = 0;  ///< bytes that the ranks of every host have mapped; 0: none
};

/// Length of kDoubleTree's chunks: short enough to fill both trees, but at least `largest` / 16.
std::uint64_t tree_chunk(int size, std::uint64_t count, std::uint64_t largest);
/// As tree_chunk(), for a broadcast: chunks go one way, and have at least `largest` / 8.
std::uint64_t broadcast_chunk(int size, std::uint64_t count, std::uint64_t largest);
/// Length of a ring's chunks: short enough for two blocks, of which one travels while the other is
/// summed, but at least `largest` / 16.
std::uint64_t ring_chunk(int size, std::uint64_t count, std::uint64_t largest);

/// Microseconds of an all-reduce of `bytes` bytes over messages; not for kMapped. A partial sum has
/// `partial_width` times the bytes of an input or result: 2 for half types, else 1.
double price(Algorithm algorithm, const Network& network, std::uint64_t bytes,
             double partial_width = 1);

/// The cheapest algorithm over messages. `deterministic` admits only algorithms that sum every
/// element in the same order, whatever the element is fused with.
Algorithm cheapest(const Network& network, std::uint64_t bytes, bool deterministic,
                   double partial_width = 1);

/// Whether an allgather, or a reduce-scatter if it `sums`, of `bytes` bytes of all ranks together
/// takes less time in ⌈log₂ p⌉ rounds than in the p − 1 of a ring, or those of a ring of hosts.
bool few_rounds_pay(const Network& network, std::uint64_t bytes, bool sums);

}  // namespace kolo
