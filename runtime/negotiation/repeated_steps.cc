#include "runtime/negotiation/repeated_steps.h"

#include <algorithm>

namespace kolo {
namespace {

/// What lasts for fewer steps was not worth its beginning and end.
constexpr std::uint64_t kWorthwhile = 16;
constexpr std::uint32_t kMostWanted = 1024;

}  // namespace

void RepeatedSteps::begin_step() {
  ++number_;
  slots_before_ = slots_;
  slots_ = 0;
  is_like_before_ = true;
  is_over_ = false;
  lists_.clear();
}

void RepeatedSteps::note(const SlotsBySteps& list) {
  bool comes_again = false;
  for (const SlotsOfStep& some : list) {
    some.slots.for_each([&](std::uint32_t slot) {
      if (slot >= seen_.size()) seen_.resize(slot + 1);
      comes_again |= seen_[slot].in == number_;
    });
  }
  if (!is_over_ && comes_again) repeats_ = 0;
  if (is_over_ || comes_again) begin_step();
  for (const SlotsOfStep& some : list) {
    some.slots.for_each([&](std::uint32_t slot) {
      Seen& seen = seen_[slot];
      is_like_before_ &= seen.in + 1 == number_ && seen.step + (some.step > 0) == some.step;
      seen = {number_, some.step};
      ++slots_;
    });
  }
  lists_.push_back(list);
  if (!is_like_before_ || slots_ != slots_before_) return;
  is_over_ = true;
  ++repeats_;
}

void RepeatedSteps::forget() {
  begin_step();
  begin_step();
  repeats_ = 0;
}

void RepeatedSteps::note_end(std::uint64_t steps) {
  wanted_ = steps < kWorthwhile ? std::min(2 * wanted_, kMostWanted) : least_;
}

}  // namespace kolo
