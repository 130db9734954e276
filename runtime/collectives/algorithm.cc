#include "runtime/collectives/algorithm.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kolo {

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kMapped:
      return "mapped";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kBidirectionalRing:
      return "bidirectional_ring";
    case Algorithm::kRecursiveDoubling:
      return "recursive_doubling";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
    case Algorithm::kDoubleTree:
      return "double_tree";
    case Algorithm::kHierarchical:
      return "hierarchical";
  }
  return "";
}

std::optional<Algorithm> algorithm_of(std::string_view name) {
  for (const Algorithm algorithm : kAlgorithms)
    if (name == to_string(algorithm)) return algorithm;
  return std::nullopt;
}

namespace {

/// The default chunk. The prices ignore KOLO_CHUNK_SIZE, because it changes them little.
constexpr std::uint64_t kChunkBytes = 256 << 10;
/// Bytes of one granule of floats. A granule is never cut into parts.
constexpr double kGranuleBytes = kCacheLineElements * sizeof(float);
/// A chunk of the trees has at least 1 / kLeastPartOfAChunk of the largest length.
constexpr std::uint64_t kLeastPartOfAChunk = 16;

/// Halving and doubling changes partners every round. Such pairs get less bandwidth than the ring's
/// neighbours, whose connections stay busy and whose sums overlap with messages. It takes 1.38 to
/// 1.42 times the time of its bytes, both on 4 hosts of 1 Gbit/s and on 8 hosts of 250 Mbit/s
/// (docs/measurements.md).
constexpr double kChangingPartners = 1.4;

int log2_up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

/// The terms of the prices. The heads of the algorithms' files give the bytes, ranks and rounds. A
/// price is the time of one all-reduce through its rounds, or the time of its busiest link if that
/// is longer. A link that lets bursts through hides bytes only after it has rested.
struct Pricing {
  Pricing(const Network& of, std::uint64_t bytes, double partial_width)
      : network(of),
        n(static_cast<double>(bytes)),
        wide(partial_width),
        p(of.layout.size()),
        hosts(of.layout.hosts()),
        locals(of.layout.most_on_a_host()),
        far(of.layout.hosts() > 1 ? of.across : of.inside) {}

  const Network& network;
  double n;
  double wide;  ///< bytes of a partial sum / bytes of an input or a result
  double p;
  double hosts;
  double locals;
  const LinkCost& far;  ///< the slowest link

  static double longer(double way, double busiest) {
    // If two algorithms keep a link busy equally long, the one with the shorter way is better.
    constexpr double kShareOfWay = 0.02;
    return std::max(way, busiest + kShareOfWay * way);
  }

  /// Microseconds of a round of `messages` simultaneous messages, without their bytes.
  static double round(const LinkCost& link, double messages) {
    return std::max(link.latency_us, messages * link.crowd_us);
  }

  double ring() const {
    // Each round waits for the slowest edge. One edge leaves each host: see HostLayout::order().
    const double part = n / p;
    const auto of_bytes = [&](double bytes) {
      return std::max(hosts > 1 ? network.across.bytes_us(bytes) : 0,
                      locals > 1 ? network.inside.bytes_us(bytes) : 0);
    };
    const double of_round = hosts > 1 ? std::max(round(network.across, hosts),
                                                 round(network.inside, locals > 1 ? p - hosts : 0))
                                      : round(network.inside, p);
    const double busiest = std::max(hosts > 1 ? network.across.us_per_byte : 0,
                                    locals > 1 ? network.inside.us_per_byte : 0);
    // Messages: one input, p − 2 partial sums, p − 1 results.
    return longer(2 * (p - 1) * of_round + p * of_bytes(part) + (p - 2) * of_bytes(wide * part),
                  (p + (p - 2) * wide) * part * busiest) +
           n * (p - 1) / p * far.reduce_us_per_byte;
  }

  double doubling(bool halves) const {
    const auto q = static_cast<double>(std::bit_floor(static_cast<unsigned>(p)));
    const double rounds = log2_up(static_cast<int>(q));
    const double across =
        hosts > 1 ? std::min<double>(rounds, log2_up(static_cast<int>(hosts))) : 0;
    const double inside = rounds - across;
    const double gamma = far.reduce_us_per_byte;
    // Ranks beyond the power of two send their vector to a member and receive the result.
    const double fold =
        q == p ? 0 : 2 * (round(far, p - q) + far.bytes_us(n)) + n * far.reduce_us_per_byte;
    const double latency = across * round(network.across, q) + inside * round(network.inside, q);
    const double folded = q == p ? 0 : n;
    // The first round sends inputs, except from a rank that has folded in another's vector.
    const auto width = [&](double round) { return round > 1 || q != p ? wide : 1; };
    // All ranks of a host exchange with another host at once.
    if (!halves) {
      double of_bytes = 0;
      double far_bytes = folded;
      for (double i = 1; i <= rounds; ++i) {
        const double sent = width(i) * n;
        of_bytes +=
            i <= across ? locals * network.across.bytes_us(sent) : network.inside.bytes_us(sent);
        if (i <= across) far_bytes += locals * sent;
      }
      return longer(fold + latency + of_bytes, far_bytes * far.us_per_byte) + rounds * n * gamma;
    }
    // The rounds across hosts come first and carry most bytes. Sums and messages alternate here,
    // while the ring overlaps them.
    double of_bytes = 0;
    double far_bytes = folded;
    for (double i = 1; i <= rounds; ++i) {
      const double part = n * std::exp2(-i);
      const auto of_host = [&](double bytes) {
        return i <= across ? kChangingPartners * locals * network.across.bytes_us(bytes)
                           : network.inside.bytes_us(bytes);
      };
      of_bytes += of_host(width(i) * part) + of_host(part);  // both phases
      if (i <= across) far_bytes += kChangingPartners * (width(i) + 1) * part * locals;
    }
    return longer(fold + 2 * latency + of_bytes, far_bytes * far.us_per_byte) +
           2 * n * (q - 1) / q * gamma;
  }

  double double_tree() const {
    const double rounds = 2.0 * log2_up(static_cast<int>(p));
    const auto chunk = static_cast<double>(
        tree_chunk(static_cast<int>(p), static_cast<std::uint64_t>(n), kChunkBytes));
    // One rank of each host sends everything twice. The ranks of a host are neighbours in the
    // trees, so up to three edges of each tree leave a host. Half of the bytes go up; with more
    // than leaves below they are partial sums.
    const double up_and_down = p > 3 ? (wide + 1) / 2 : 1;
    const double sent = (hosts > 1 && locals > 1 ? 3 * n : 2 * n) * up_and_down;
    // Each edge of both trees carries a message up and one down. One granule uses one tree only.
    const double messages = (n > kGranuleBytes ? 2 : 1) * 2 * (p - 1);
    const double fill = std::max(rounds * far.latency_us, messages * far.crowd_us) +
                        rounds * far.bytes_us(std::min(chunk, n));
    return longer(fill + far.bytes_us(sent), sent * far.us_per_byte) + n * far.reduce_us_per_byte;
  }

  double hierarchical() const {
    const bool maps = network.window_bytes > 0;
    const double gamma = far.reduce_us_per_byte;
    // Through windows each rank copies its input and its result. A copy costs as much as a sum.
    const double inside =
        maps ? 2 * n * gamma : 2 * (locals - 1) * network.inside.bytes_us(n / locals);
    // The sums of hosts travel first, then the results. Hosts of one rank send inputs in the first
    // round.
    const double part = n / hosts / locals;
    const double first = locals > 1 ? wide : 1;
    const double across = locals * (network.across.bytes_us(first * part) +
                                    (hosts - 2) * network.across.bytes_us(wide * part) +
                                    (hosts - 1) * network.across.bytes_us(part));
    const double busiest =
        (first + (hosts - 2) * wide + hosts - 1) / hosts * n * network.across.us_per_byte;
    // Each block pays the latency of its rounds. Small windows make many blocks, kPipelineSlots at
    // a time.
    const double blocks = maps ? std::max(1.0, n / static_cast<double>(network.window_bytes)) : 1;
    // Each slice has a ring across hosts. A granule is not cut, so few elements have fewer chunks.
    const double chunks = std::min(locals * hosts, std::ceil(n / kGranuleBytes));
    const double rounds = 2 * (hosts - 1);
    const double latency =
        std::max(rounds * network.across.latency_us, rounds * chunks * network.across.crowd_us);
    return longer(blocks * latency + across, busiest) + (hosts - 1) / hosts / locals * n * gamma +
           (locals > 1 ? 2 * network.inside.latency_us + inside + n * gamma : 0);
  }
};

}  // namespace

std::uint64_t tree_chunk(int size, std::uint64_t count, std::uint64_t largest) {
  const auto on_the_way = static_cast<std::uint64_t>(2 * log2_up(size) + 2);
  const std::uint64_t least = std::max<std::uint64_t>(largest / kLeastPartOfAChunk, 1);
  const std::uint64_t wanted = round_down(count / 2 / on_the_way, kCacheLineElements);
  return std::clamp(wanted, least, std::max(least, largest));
}

double price(Algorithm algorithm, const Network& network, std::uint64_t bytes,
             double partial_width) {
  const Pricing pricing(network, bytes, partial_width);
  switch (algorithm) {
    case Algorithm::kRing:
    case Algorithm::kBidirectionalRing:  // the model lets links carry both directions at once
                                         // anyway
      return pricing.ring();
    case Algorithm::kRecursiveDoubling:
      return pricing.doubling(false);
    case Algorithm::kHalvingDoubling:
      return pricing.doubling(true);
    case Algorithm::kDoubleTree:
      return pricing.double_tree();
    case Algorithm::kHierarchical:
      return pricing.hierarchical();
    case Algorithm::kMapped:
      break;
  }
  KOLO_CHECK(false);
  return 0;
}

Algorithm cheapest(const Network& network, std::uint64_t bytes, bool deterministic,
                   double partial_width) {
  Algorithm best = Algorithm::kHalvingDoubling;
  double least = std::numeric_limits<double>::infinity();
  const bool has_levels = network.layout.hosts() > 1 && network.layout.most_on_a_host() > 1;
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::kMapped) continue;
    const bool one_order =
        algorithm == Algorithm::kRecursiveDoubling || algorithm == Algorithm::kHalvingDoubling;
    if (deterministic && !one_order) continue;
    if (algorithm == Algorithm::kHierarchical && !has_levels) continue;
    const double cost = price(algorithm, network, bytes, partial_width);
    if (cost >= least) continue;
    least = cost;
    best = algorithm;
  }
  return best;
}

}  // namespace kolo
