#include "runtime/negotiation/ready_slots.h"

#include <algorithm>

namespace kolo {

ReadySlots::ReadySlots(int ranks)
    : ranks_(ranks), words_((static_cast<std::size_t>(ranks) + 63) / 64) {}

ReadySlots::Added ReadySlots::add(int rank, std::uint32_t slot, std::uint64_t step,
                                  Clock::time_point now) {
  if (slot >= counts_.size()) {
    counts_.resize(slot + 1);
    bits_.resize((slot + 1) * words_);
  }
  Count& count = counts_[slot];
  std::uint64_t& word = bits_[slot * words_ + static_cast<std::size_t>(rank) / 64];
  const std::uint64_t bit = std::uint64_t{1} << (rank % 64);
  if ((word & bit) != 0) return Added::kTwice;
  if (count.ready == 0) {
    count.since = now;
    count.step = 0;
    ++open_;
  }
  if (count.step == 0) count.step = step;
  if (step != 0 && step != count.step) return Added::kOtherStep;
  word |= bit;
  if (++count.ready < ranks_) return Added::kYes;
  forget(slot);
  complete_.insert(slot);
  return Added::kYes;
}

void ReadySlots::forget(std::uint32_t slot) {
  std::fill_n(bits_.begin() + static_cast<std::ptrdiff_t>(slot * words_), words_, 0);
  counts_[slot].ready = 0;
  --open_;
}

std::optional<ReadySlots::Partial> ReadySlots::take_partial(std::uint32_t slot) {
  if (slot >= counts_.size() || counts_[slot].ready == 0) return std::nullopt;
  Partial partial{{}, counts_[slot].step, counts_[slot].since};
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::uint64_t word = bits_[slot * words_ + static_cast<std::size_t>(rank) / 64];
    if ((word >> (rank % 64) & 1) != 0) partial.ranks.push_back(rank);
  }
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
