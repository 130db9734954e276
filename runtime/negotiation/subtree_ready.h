// SubtreeReady: a rank between rank 0 and others (ControlTree) puts together the bits by which it
// and those below it announce slots of the response cache. What all of them have announced goes on
// as one. The rest goes on by rank when it is told to, and so does what follows it, as soon as all
// are there. Either form says the same; only their number differs. Progress token holder only.
#pragma once

#include "runtime/negotiation/place_bits.h"
#include "runtime/negotiation/slot_set.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kolo {

class SubtreeReady {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SubtreeReady(int ranks) : ranks_(ranks), ready_(ranks), held_(ranks) {}

  /// Some ranks, by their places, are ready for `slot` in their `step`.
  void add(Places ranks, std::uint32_t slot, std::uint64_t step, Clock::time_point now);
  /// The calls of this slot that were passed on are decided: others begin.
  void settle(std::uint32_t slot);

  /// Passes on by rank what has been held since `before` or longer.
  void pass_on(Clock::time_point before);
  /// Not later than what is held; nothing if nothing is.
  std::optional<Clock::time_point> held_since() const {
    return held_slots_ > 0 ? std::optional(oldest_) : std::nullopt;
  }

  struct PassedOn {
    SlotsBySteps by_all;   ///< what all ranks have announced
    SlotsByRank by_place;  ///< what some ranks have, by place
  };
  bool has_passed_on() const { return !passed_on_.by_all.empty() || !passed_on_.by_place.empty(); }
  /// Takes what is to be passed on now.
  PassedOn take() { return std::exchange(passed_on_, {}); }

 private:
  struct Count {
    int ready = 0;  ///< ranks that have announced the call
    int held = 0;   ///< those of them that were not passed on
    std::uint64_t step = 0;
    Clock::time_point since;
  };

  void pass_on_by_rank(std::uint32_t slot);
  void begin(std::uint32_t slot);

  const int ranks_;
  std::vector<Count> counts_;
  PlaceBits ready_;
  PlaceBits held_;
  std::size_t held_slots_ = 0;
  Clock::time_point oldest_;
  PassedOn passed_on_;
};

}  // namespace kolo
