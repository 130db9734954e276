#include "runtime/collectives/algorithm.h"

#include "runtime/base/check.h"

#include <bit>
#include <limits>

namespace kolo {

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kMapped:
      return "mapped";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kRecursiveDoubling:
      return "recursive_doubling";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
  }
  return "";
}

std::optional<Algorithm> algorithm_of(std::string_view name) {
  for (const Algorithm algorithm : kAlgorithms)
    if (name == to_string(algorithm)) return algorithm;
  return std::nullopt;
}

double price(Algorithm algorithm, int size, std::uint64_t bytes, const LinkCost& link) {
  const double n = static_cast<double>(bytes);
  const double p = size;
  const auto doubling = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const double q = doubling;
  const double rounds = std::bit_width(static_cast<unsigned>(doubling)) - 1;
  const double whole = link.latency_us + n * link.us_per_byte;
  // Ranks beyond the power of two hand their vector in, and get it back.
  const double fold = doubling == size ? 0 : 2 * whole + n * link.reduce_us_per_byte;
  switch (algorithm) {
    case Algorithm::kRing:
      return 2 * (p - 1) * link.latency_us + 2 * n * (p - 1) / p * link.us_per_byte +
             n * (p - 1) / p * link.reduce_us_per_byte;
    case Algorithm::kRecursiveDoubling:
      return fold + rounds * (whole + n * link.reduce_us_per_byte);
    case Algorithm::kHalvingDoubling:
      // The ring overlaps its sums with its messages; here one waits for the other.
      return fold + 2 * rounds * link.latency_us + 2 * n * (q - 1) / q * link.us_per_byte +
             2 * n * (q - 1) / q * link.reduce_us_per_byte;
    case Algorithm::kMapped:
      break;
  }
  KOLO_CHECK(false);
  return 0;
}

Algorithm AllreducePolicy::choose(std::uint64_t bytes) const {
  if (can_map && forced.value_or(Algorithm::kMapped) == Algorithm::kMapped)
    return Algorithm::kMapped;
  if (forced && *forced != Algorithm::kMapped) return *forced;
  return cheapest(size, bytes, link, deterministic);
}

Algorithm cheapest(int size, std::uint64_t bytes, const LinkCost& link, bool deterministic) {
  Algorithm best = Algorithm::kHalvingDoubling;
  double least = std::numeric_limits<double>::infinity();
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling}) {
    if (deterministic && algorithm == Algorithm::kRing) continue;
    const double cost = price(algorithm, size, bytes, link);
    if (cost >= least) continue;
    least = cost;
    best = algorithm;
  }
  return best;
}

}  // namespace kolo
