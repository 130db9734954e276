#include "runtime/negotiation/ready_slots.h"

namespace kolo {

ReadySlots::ReadySlots(int ranks) : ranks_(ranks), bits_(ranks) {}

ReadySlots::Added ReadySlots::add(Places ranks, std::uint32_t slot, std::uint64_t step,
                                  Clock::time_point now) {
  if (slot >= counts_.size()) {
    counts_.resize(slot + 1);
    bits_.resize(slot + 1);
  }
  Count& count = counts_[slot];
  if (bits_.any(slot, ranks)) return Added::kTwice;
  if (count.ready == 0) {
    count.since = now;
    count.step = 0;
    ++open_;
  }
  if (count.step == 0) count.step = step;
  if (step != 0 && step != count.step) return Added::kOtherStep;
  bits_.set(slot, ranks);
  count.ready += ranks.count;
  if (count.ready < ranks_) return Added::kYes;
  forget(slot);
  complete_.insert(slot);
  return Added::kYes;
}

void ReadySlots::forget(std::uint32_t slot) {
  bits_.clear(slot);
  counts_[slot].ready = 0;
  --open_;
}

std::optional<ReadySlots::Partial> ReadySlots::take_partial(std::uint32_t slot) {
  if (slot >= counts_.size() || counts_[slot].ready == 0) return std::nullopt;
  Partial partial{{}, counts_[slot].step, counts_[slot].since};
  bits_.for_each(slot, [&](int place) { partial.places.push_back(place); });
  forget(slot);
  return partial;
}

std::vector<std::uint32_t> ReadySlots::partial(Clock::time_point before) const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t slot = 0; slot < counts_.size(); ++slot) {
    const Count& count = counts_[slot];
    if (count.ready > 0 && count.since <= before) slots.push_back(slot);
  }
  return slots;
}

}  // namespace kolo
