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
/// A chunk of the trees or the ring has at least 1 / kLeastPartOfAChunk of the largest length.
constexpr std::uint64_t kLeastPartOfAChunk = 16;
/// A broadcast's chunks are twice as long: no sums overlap with their messages.
constexpr std::uint64_t kLeastPartOfABroadcast = 8;

/// Halving and doubling changes partners every round. Such pairs get less bandwidth than the ring's
/// neighbours, whose connections stay busy and whose sums overlap with messages. On 4 hosts of 1
/// Gbit/s and 8 of 250 Mbit/s it takes 0.95 to 1.05 times the ring's time up to kFewBytes, and 1.2
/// to 1.7 times from 4 MiB on (docs/measurements.md).
constexpr double kChangingPartners = 1.4;
constexpr double kChangingPartnersOfFew = 1.1;
constexpr double kFewBytes = 512 << 10;

/// A ring has at least as many blocks, if they are long enough: while one is summed, the other
/// travels. Four would take as long on 100 Gb/s links, with twice as many messages.
constexpr std::uint64_t kRingBlocks = 2;
/// Blocks that work at once, by the default of KOLO_CHUNKS_IN_FLIGHT. A window of two levels is cut
/// into as many.
constexpr double kBlocksAtOnce = 4;

/// Bytes that a copy, and a sum of three operands, read and write, relative to a sum of two.
constexpr double kCopy = 2.0 / 3;
constexpr double kSumOfThree = 4.0 / 3;

/// A chunk of about `wanted` elements, in whole cache lines.
std::uint64_t chunk_of(std::uint64_t wanted, std::uint64_t largest) {
  const std::uint64_t least = std::max<std::uint64_t>(largest / kLeastPartOfAChunk, 1);
  return std::clamp(round_up(wanted, kCacheLineElements), least, std::max(least, largest));
}

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

  double changing_partners() const {
    return n > kFewBytes ? kChangingPartners : kChangingPartnersOfFew;
  }

  static double longer(double way, double busiest) {
    // If two algorithms keep a link busy equally long, the one with the shorter way is better.
    constexpr double kShareOfWay = 0.02;
    return std::max(way, busiest + kShareOfWay * way);
  }

  /// Microseconds of a round of `messages` simultaneous messages, without their bytes.
  static double round(const LinkCost& link, double messages) {
    return std::max(link.latency_us, messages * link.crowd_us);
  }

  double ring(bool bidirectional) const {
    // One edge leaves each host: see HostLayout::order(). A chunk passes all edges.
    const double far_edges = hosts > 1 ? hosts : 0;
    const double near_edges = locals > 1 ? p - far_edges : 0;
    const auto per_edge = [&](double across, double inside) {
      return (far_edges * across + near_edges * inside) / p;
    };
    const auto of_bytes = [&](double bytes) {
      return per_edge(network.across.bytes_us(bytes), network.inside.bytes_us(bytes));
    };
    const double of_round = per_edge(round(network.across, p), round(network.inside, p));
    const double part = n / p;
    const auto chunk = static_cast<double>(
        ring_chunk(static_cast<int>(p), static_cast<std::uint64_t>(n), kChunkBytes));
    const double blocks = std::max(std::ceil(part / chunk), 1.0);
    const double block = part / blocks;
    // Messages of a block: one input, p − 2 partial sums, p − 1 results.
    const double of_block = 2 * (p - 1) * of_round + p * of_bytes(block) +
                            (p - 2) * of_bytes(wide * block) +
                            (p - 1) * block * far.reduce_us_per_byte;
    // Each of a host's two ranks has a neighbour in another host. Both ways round, the edge between
    // the two carries half of the bytes in each direction.
    const double near_share = bidirectional && hosts > 1 && locals == 2 ? 0.5 : 1;
    const double busiest = std::max(far_edges > 0 ? network.across.us_per_byte : 0,
                                    near_edges > 0 ? near_share * network.inside.us_per_byte : 0);
    // The allgather of the last blocks has no sums beside it.
    const double waves = std::max(blocks / kBlocksAtOnce, 1.0);
    const double link = (p + (p - 2) * wide) * part * busiest;
    const double core = (p - 1) * part * far.reduce_us_per_byte;
    return longer(of_block * waves, std::max(link, core + link / (2 * waves)));
  }

  double doubling(bool halves) const {
    const auto q = static_cast<double>(std::bit_floor(static_cast<unsigned>(p)));
    const double rounds = log2_up(static_cast<int>(q));
    const double across =
        hosts > 1 ? std::min<double>(rounds, log2_up(static_cast<int>(hosts))) : 0;
    const double inside = rounds - across;
    const double gamma = far.reduce_us_per_byte;
    const double copies = 2 * kCopy * n * gamma;  // its input, its result
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
      return longer(fold + latency + of_bytes, far_bytes * far.us_per_byte) + rounds * n * gamma +
             copies;
    }
    // The rounds across hosts come first and carry most bytes. Sums and messages alternate here,
    // while the ring overlaps them.
    double of_bytes = 0;
    double far_bytes = folded;
    for (double i = 1; i <= rounds; ++i) {
      const double part = n * std::exp2(-i);
      const auto of_host = [&](double bytes) {
        return i <= across ? changing_partners() * locals * network.across.bytes_us(bytes)
                           : network.inside.bytes_us(bytes);
      };
      of_bytes += of_host(width(i) * part) + of_host(part);  // both phases
      if (i <= across) far_bytes += changing_partners() * (width(i) + 1) * part * locals;
    }
    return longer(fold + 2 * latency + of_bytes, far_bytes * far.us_per_byte) +
           n * (q - 1) / q * gamma + copies;
  }

  double double_tree() const {
    // In the lowest levels of the trees, the ranks of a host are each other's children. Up to three
    // edges of each tree leave a host.
    const double rounds = 2.0 * log2_up(static_cast<int>(p));
    const bool both = hosts > 1 && locals > 1;
    const double near_rounds =
        both ? 2.0 * std::max<int>(std::bit_width(static_cast<unsigned>(locals)) - 2, 0) : 0;
    const auto per_way = [&](double of_far, double of_near) {
      return (rounds - near_rounds) * of_far + near_rounds * of_near;
    };
    const auto chunk = static_cast<double>(
        tree_chunk(static_cast<int>(p), static_cast<std::uint64_t>(n), kChunkBytes));
    const double first = std::min(chunk, n);
    // Each edge of both trees carries a message up and one down. One granule uses one tree only.
    const double messages = (n > kGranuleBytes ? 2 : 1) * 2 * (p - 1);
    const double fill =
        std::max(per_way(far.latency_us, network.inside.latency_us), messages * far.crowd_us) +
        per_way(far.bytes_us(first), network.inside.bytes_us(first)) +
        rounds / 2 * kSumOfThree * first * far.reduce_us_per_byte;
    // Half of the bytes go up; with more than leaves below they are partial sums.
    const double up_and_down = p > 3 ? (wide + 1) / 2 : 1;
    const double far_sent = (both ? 3 * n : 2 * n) * up_and_down;
    const double near_sent = both ? (locals > 2 ? 2 * n : n) * up_and_down : 0;
    // An inner rank sums three operands of its half of the bytes. A leaf copies its input. Both
    // copy their results.
    const double core = (kSumOfThree / 2 + 1.5 * kCopy) * n * far.reduce_us_per_byte;
    return longer(
        fill + std::max({far.bytes_us(far_sent), network.inside.bytes_us(near_sent), core}),
        std::max(far_sent * far.us_per_byte, near_sent * network.inside.us_per_byte));
  }

  /// An allgather or reduce-scatter of n bytes of all ranks together, by a ring of ranks or hosts.
  double ring_of_parts(bool sums) const {
    const bool has_levels = hosts > 1 && locals > 1 && network.window_bytes > 0;
    const double hops = (has_levels ? hosts : p) - 1;
    return hops * round(far, p) + n * far.us_per_byte + (sums ? n * far.reduce_us_per_byte : 0);
  }
  /// Such a call by Bruck's rounds, by recursive doubling or halving.
  double few_rounds_of_parts(bool sums) const {
    const auto q = static_cast<double>(std::bit_floor(static_cast<unsigned>(p)));
    const double folds = sums && q != p ? 2 : 0;
    const double share = hosts > 1 ? changing_partners() * locals : 1;
    const double copies = sums || q != p ? 2 * kCopy : 0;
    return (log2_up(static_cast<int>(sums ? q : p)) + folds) * round(far, p) +
           n * far.us_per_byte * (share + folds / 2) +
           (copies + (sums ? 1 + folds / 2 : 0)) * n * far.reduce_us_per_byte;
  }

  double hierarchical() const {
    const bool maps = network.window_bytes > 0;
    const double gamma = far.reduce_us_per_byte;
    const double inside = maps ? 0 : 2 * (locals - 1) * network.inside.bytes_us(n / locals);
    // Through windows each rank copies its input and its result, and sums all inputs of its slice.
    const double core = ((hosts - 1) / hosts / locals +
                         (maps ? 2 * kCopy + (locals + 1) / (3 * locals) : (locals - 1) / locals)) *
                        n * gamma;
    // The sums of hosts travel first, then the results. Hosts of one rank send inputs in the first
    // round.
    const double part = n / hosts / locals;
    const double first = locals > 1 ? wide : 1;
    const double of_slice = network.across.bytes_us(first * part) +
                            (hosts - 2) * network.across.bytes_us(wide * part) +
                            (hosts - 1) * network.across.bytes_us(part);
    const double busiest =
        (first + (hosts - 2) * wide + hosts - 1) / hosts * n * network.across.us_per_byte;
    // Each block pays the latency of its rounds. Small windows make many blocks, kBlocksAtOnce at a
    // time.
    const double windows = maps ? n / static_cast<double>(network.window_bytes) : 0;
    const double blocks = windows * kBlocksAtOnce;
    // Each slice has a ring across hosts; while one waits, others use the link. A granule is not
    // cut, so few elements have fewer chunks.
    const double chunks = std::min(locals * hosts, std::ceil(n / kGranuleBytes));
    const double rounds = 2 * (hosts - 1);
    const double latency =
        std::max(rounds * network.across.latency_us, rounds * chunks * network.across.crowd_us);
    const double net = longer(std::max(windows, 1.0) * latency + of_slice, busiest) +
                       (locals > 1 ? 2 * network.inside.latency_us + inside : 0);
    // While some blocks are on the network, others are summed. Half of a block's work overlaps with
    // its own messages.
    return std::max(net, core) + std::min(net, core) / (2 * std::max(blocks, 1.0));
  }
};

}  // namespace

std::uint64_t tree_chunk(int size, std::uint64_t count, std::uint64_t largest) {
  const auto on_the_way = static_cast<std::uint64_t>(2 * log2_up(size) + 2);
  return chunk_of(count / 2 / on_the_way, largest);
}

std::uint64_t broadcast_chunk(int size, std::uint64_t count, std::uint64_t largest) {
  const auto on_the_way = static_cast<std::uint64_t>(log2_up(size) + 2);
  return std::max(chunk_of(count / 2 / on_the_way, largest), largest / kLeastPartOfABroadcast);
}

std::uint64_t ring_chunk(int size, std::uint64_t count, std::uint64_t largest) {
  const std::uint64_t chunks = static_cast<std::uint64_t>(size) * kRingBlocks;
  return chunk_of(ceil_div(count, chunks), largest);
}

double price(Algorithm algorithm, const Network& network, std::uint64_t bytes,
             double partial_width) {
  const Pricing pricing(network, bytes, partial_width);
  switch (algorithm) {
    case Algorithm::kRing:
      return pricing.ring(/*bidirectional=*/false);
    case Algorithm::kBidirectionalRing:
      return pricing.ring(/*bidirectional=*/true);
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

bool few_rounds_pay(const Network& network, std::uint64_t bytes, bool sums) {
  const Pricing pricing(network, bytes, /*partial_width=*/1);
  return pricing.few_rounds_of_parts(sums) < pricing.ring_of_parts(sums);
}

}  // namespace kolo
