// RepeatedSteps: finds out that a program's steps repeat. Rank 0 notes every list that all ranks
// have agreed on by bits. A step ends when it has the slots of the step before, or when a slot
// comes again. Progress token holder only.
#pragma once

#include "runtime/negotiation/slot_set.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo {

class RepeatedSteps {
 public:
  /// `wanted`: equal steps in a row until is_steady(). 0: it never is.
  explicit RepeatedSteps(std::uint32_t wanted) : least_(wanted), wanted_(wanted) {}

  /// All ranks have agreed on these slots; `list` says of which step of the caller each call was.
  void note(const SlotsBySteps& list);
  /// Something else has happened between the steps.
  void forget();

  /// The step that has just ended is like those before it.
  bool is_steady() const { return is_over_ && wanted_ > 0 && repeats_ >= wanted_; }
  /// The lists of the step so far, in order.
  const SlotLists& lists() const { return lists_; }
  /// What was made of steady steps has lasted for `steps` more. If these are few, is_steady() waits
  /// for twice as many equal steps as before.
  void note_end(std::uint64_t steps);

 private:
  struct Seen {
    std::uint64_t in = 0;    ///< number of the step that had the slot last
    std::uint64_t step = 0;  ///< the caller's number of it
  };

  void begin_step();

  const std::uint32_t least_;
  std::uint32_t wanted_;
  std::vector<Seen> seen_;    ///< by slot
  std::uint64_t number_ = 2;  ///< the present one
  std::size_t slots_ = 0;     ///< so far in this step
  std::size_t slots_before_ = 0;
  bool is_like_before_ = true;
  bool is_over_ = false;
  std::uint32_t repeats_ = 0;
  SlotLists lists_;
};

}  // namespace kolo
