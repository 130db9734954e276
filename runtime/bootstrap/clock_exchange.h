// How far the steady clocks of the ranks are apart, so that what they record lies on one axis. Used
// by the thread that calls init, if any rank keeps a timeline.
#pragma once

#include "runtime/bootstrap/bootstrap.h"

#include <cstdint>
#include <functional>

namespace kolo {

/// Nanoseconds of this rank's steady clock.
struct ClockOffset {
  std::int64_t zero = 0;    ///< one moment, the same on all ranks
  std::int64_t offset = 0;  ///< this rank's clock minus rank 0's
  std::int64_t error = 0;   ///< how far off `offset` may be at most
};

/// Collective. What a rank sends is stamped before and after each of a few exchanges; a blob from
/// rank 0 cannot arrive before it was sent, nor one to it, which bounds the offset from both sides
/// (the bounds of Marzullo and Owicki, "Maintaining the time in a distributed system", 1983).
/// `same_clock`: this rank is known to read rank 0's clock. `now` is the steady clock.
Result<ClockOffset> exchange_clock(Bootstrap& bootstrap, bool same_clock, Deadline deadline,
                                   const std::function<std::int64_t()>& now);

}  // namespace kolo
