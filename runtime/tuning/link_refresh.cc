// The corrections: exponentially weighted means of each window's shortest time.
#include "runtime/tuning/link_refresh.h"

#include <algorithm>
#include <utility>

namespace kolo {
namespace {

constexpr int kWindow = 32;      ///< operations, of which the fastest counts
constexpr double kWeight = 0.5;  ///< of a window
constexpr double kMostAtOnce =
    8;                         ///< times a window may be off: a machine that was suspended is not
constexpr double kPure = 0.8;  ///< of a price, for an operation to tell one of the two apart
constexpr double kClearly = 1.15;  ///< cheaper, for a choice to change
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

Network with(Network network, const LinkCosts& costs) {
  network.inside = costs.inside;
  network.across = costs.across;
  return network;
}

}  // namespace

LinkRefresh::LinkRefresh(AllreducePolicy policy)
    : policy_(std::move(policy)), start_{policy_.network.inside, policy_.network.across} {}

bool LinkRefresh::has_choice(const AllreducePolicy& policy) {
  return !policy.can_map && !policy.forced && !policy.deterministic &&
         policy.network.layout.size() > 1;
}

void LinkRefresh::Correction::add(double ratio) {
  least = samples == 0 ? ratio : std::min(least, ratio);
  if (++samples < kWindow) return;
  factor += kWeight * (std::clamp(least, factor / kMostAtOnce, factor * kMostAtOnce) - factor);
  samples = 0;
}

void LinkRefresh::note(Algorithm algorithm, std::uint64_t bytes, double partial_width, double us) {
  const Network network = with(policy_.network, start_);
  const double of_latency = price(algorithm, network, 0);
  const double of_bytes = price(algorithm, network, bytes, partial_width) - of_latency;
  const double priced = of_latency * latency_.factor + of_bytes * bytes_.factor;
  if (priced <= 0) return;
  if (of_latency * latency_.factor >= kPure * priced) {
    latency_.add(us / (priced / latency_.factor));
    changed_ |= latency_.samples == 0;
  } else if (of_bytes * bytes_.factor >= kPure * priced) {
    bytes_.add(us / (priced / bytes_.factor));
    changed_ |= bytes_.samples == 0;
  }
}

LinkCosts LinkRefresh::costs() const {
  LinkCosts costs = start_;
  for (LinkCost* const link : {&costs.inside, &costs.across}) {
    link->latency_us *= latency_.factor;
    link->crowd_us *= latency_.factor;
    link->us_per_byte *= bytes_.factor;
    link->reduce_us_per_byte *= bytes_.factor;
    link->early_us *= bytes_.factor;
  }
  return costs;
}

std::optional<LinkCosts> LinkRefresh::take_due() {
  if (!std::exchange(changed_, false)) return std::nullopt;
  const LinkCosts found = costs();
  const Network network = with(policy_.network, found);
  for (std::uint64_t bytes = 4; bytes <= kMostBytes; bytes *= 2) {
    const Algorithm now = cheapest(policy_.network, bytes, false);
    const Algorithm then = cheapest(network, bytes, false);
    if (price(now, network, bytes) > kClearly * price(then, network, bytes)) return found;
  }
  return std::nullopt;
}

void LinkRefresh::adopt(const LinkCosts& costs) { policy_.network = with(policy_.network, costs); }

}  // namespace kolo
