// Fits the limits of the exchange to measured times: up to which size all-reduces take one hop, two
// hops, or a schedule over the windows. Where cores exchange lines slowly the limits lie elsewhere
// than where they do so fast. Pure functions; Runtime::choose_exchange() measures.
#pragma once

#include "runtime/planning/exchange_limits.h"

#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <vector>

namespace kolo {

/// Times of in-order all-reduces of `bytes` bytes in place on the slowest rank, in microseconds, by
/// the way they go. Infinite: they cannot go that way.
struct ExchangeTimes {
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  std::size_t bytes = 0;
  bool in_arena = false;  ///< all ranks' memory lies in the arena
  double one_shot_us = kNever;
  double two_shot_us = kNever;
  double schedule_us = kNever;
};

/// What a process has measured, by the number of ranks on the host: worlds that it enters later
/// need not measure it again.
using MeasuredExchange = std::map<int, std::vector<ExchangeTimes>>;

/// `limits` with those sizes from which the measured all-reduces together take the least time, as
/// the product of their times: a size counts as much as any other. All-reduces go in one hop up to
/// the first size, in two hops up to the second, and by schedules beyond. A size leaves the way of
/// `limits` for a gain of 5 % and more. Sizes are measured ones, or `limits` where all measured
/// sizes go one way. Precondition: `times` of private memory come first, and each memory's times
/// ascend by size.
ExchangeLimits fitted(ExchangeLimits limits, std::span<const ExchangeTimes> times);

}  // namespace kolo
