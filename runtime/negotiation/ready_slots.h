// ReadySlots: rank 0 counts the ranks that are ready for a slot of the response cache. If every
// rank announces a tensor by its bit, the count decides. If a rank announces it in full or for
// another step, the coordinator decides and takes over the bits counted so far. Ranks are given by
// their places below rank 0. Progress token holder only. (The bit-vector agreement of Horovod's
// response cache.)
#pragma once

#include "runtime/negotiation/place_bits.h"
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
    kTwice,      ///< not added: one of the ranks announced the slot already
    kOtherStep,  ///< not added: other ranks are ready for it in another step
  };
  /// Some ranks are ready for `slot` in their `step` (see Entry::step).
  Added add(Places ranks, std::uint32_t slot, std::uint64_t step, Clock::time_point now);

  /// Takes the slots that all ranks became ready for since the last call.
  SlotSet take_complete() { return std::exchange(complete_, {}); }
  bool has_complete() const { return !complete_.empty(); }

  /// The ranks that are ready for a slot, their step, and since when the first one is.
  struct Partial {
    std::vector<int> places;
    std::uint64_t step;
    Clock::time_point since;
  };
  /// Forgets a slot that some ranks, not all, are ready for; nothing if there are none.
  std::optional<Partial> take_partial(std::uint32_t slot);
  /// Slots that some ranks, not all, have been ready for since `before` or longer; ascending.
  std::vector<std::uint32_t> partial(Clock::time_point before = Clock::time_point::max()) const;
  bool has_partial() const { return open_ > 0; }

 private:
  struct Count {
    int ready = 0;
    std::uint64_t step = 0;  ///< step of the ranks that state one
    Clock::time_point since;
  };

  void forget(std::uint32_t slot);

  const int ranks_;
  std::vector<Count> counts_;
  PlaceBits bits_;
  std::size_t open_ = 0;
  SlotSet complete_;
};

}  // namespace kolo
