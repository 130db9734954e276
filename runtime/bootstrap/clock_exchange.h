// Measures how far the ranks' steady clocks are apart, so that their timelines share one axis. Used
// by the thread that calls init, where ranks are on several hosts.
#pragma once

#include "runtime/bootstrap/bootstrap.h"

#include <cstdint>
#include <functional>

namespace kolo {

/// Nanoseconds of this rank's steady clock.
struct ClockOffset {
  std::int64_t zero = 0;    ///< one moment that all ranks share
  std::int64_t offset = 0;  ///< this rank's clock minus rank 0's
  std::int64_t error = 0;   ///< largest error of `offset`
};

/// Collective. Each rank takes a timestamp before and after each of a few exchanges. No blob from
/// or to rank 0 can arrive before it was sent, which bounds the offset from both sides (the bounds
/// of Marzullo and Owicki, "Maintaining the time in a distributed system", 1983). `same_clock`:
/// this rank reads the clock of rank 0. `now`: the steady clock.
Result<ClockOffset> exchange_clock(Bootstrap& bootstrap, bool same_clock, Deadline deadline,
                                   const std::function<std::int64_t()>& now);

}  // namespace kolo
