// ReadySlots: rank 0's count of who is ready for what by a bit of the response cache. As long as
// every rank announces a tensor by its bit, agreeing on it is counting to the number of ranks; a
// tensor that anybody announces otherwise, or for another step, goes through the coordinator, with
// the bits that are here already. Token holder only. (The bit-vector agreement of Horovod's
// response cache.)
#pragma once

#include "runtime/negotiation/slot_set.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kolo {

class ReadySlots {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ReadySlots(int ranks);

  enum class Added : std::uint8_t {
    kYes,
    kTwice,      ///< not: the rank said so already
    kOtherStep,  ///< not: others are ready for it in another step
  };
  /// `rank` is ready for `slot` in its `step`, as Entry::step.
  Added add(int rank, std::uint32_t slot, std::uint64_t step, Clock::time_point now);

  /// Slots that all ranks were ready for since the last call.
  SlotSet take_complete() { return std::exchange(complete_, {}); }
  bool has_complete() const { return !complete_.empty(); }

  /// Who has been ready for a slot, and since when the first one.
  struct Partial {
    std::vector<int> ranks;
    std::uint64_t step;
    Clock::time_point since;
  };
  /// Forgets a slot that some ranks are ready for; nothing if none is, or all are.
  std::optional<Partial> take_partial(std::uint32_t slot);
  /// Slots that some ranks, not all, have been ready for since `before` or longer; ascending.
  std::vector<std::uint32_t> partial(Clock::time_point before = Clock::time_point::max()) const;
  bool has_partial() const { return open_ > 0; }

 private:
  struct Count {
    int ready = 0;
    std::uint64_t step = 0;  ///< of those that have told one
    Clock::time_point since;
  };

  void forget(std::uint32_t slot);

  const int ranks_;
  const std::size_t words_;  ///< of bits a slot: one for each rank
  std::vector<Count> counts_;
  std::vector<std::uint64_t> bits_;
  std::size_t open_ = 0;
  SlotSet complete_;
};

}  // namespace kolo
