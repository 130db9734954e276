#include "runtime/negotiation/subtree_ready.h"

#include <algorithm>

namespace kolo {

void SubtreeReady::add(Places ranks, std::uint32_t slot, std::uint64_t step,
                       Clock::time_point now) {
  if (slot >= counts_.size()) {
    counts_.resize(slot + 1);
    ready_.resize(slot + 1);
    held_.resize(slot + 1);
  }
  Count& count = counts_[slot];
  if (ready_.any(slot, ranks)) {
    // Their next call: this rank has not heard yet that the last one is decided.
    pass_on_by_rank(slot);
    begin(slot);
  } else if (count.step != step) {
    pass_on_by_rank(slot);
  }
  count.step = step;
  if (count.held == 0) {
    count.since = now;
    if (held_slots_++ == 0 || now < oldest_) oldest_ = now;
  }
  ready_.set(slot, ranks);
  held_.set(slot, ranks);
  count.ready += ranks.count;
  count.held += ranks.count;
  if (count.ready < ranks_) return;
  if (count.held == ranks_) {
    insert(passed_on_.by_all, step, slot);
    held_.clear(slot);
    count.held = 0;
    --held_slots_;
  } else {
    pass_on_by_rank(slot);
  }
  begin(slot);
}

void SubtreeReady::pass_on_by_rank(std::uint32_t slot) {
  Count& count = counts_[slot];
  if (count.held == 0) return;
  held_.for_each(slot, [&](int place) { insert(passed_on_.by_place[place], count.step, slot); });
  held_.clear(slot);
  count.held = 0;
  --held_slots_;
}

void SubtreeReady::begin(std::uint32_t slot) {
  ready_.copy(slot, held_);
  counts_[slot].ready = counts_[slot].held;
}

void SubtreeReady::settle(std::uint32_t slot) {
  if (slot < counts_.size()) begin(slot);
}

void SubtreeReady::pass_on(Clock::time_point before) {
  if (held_slots_ == 0 || oldest_ > before) return;
  oldest_ = Clock::time_point::max();
  for (std::uint32_t slot = 0; slot < counts_.size(); ++slot) {
    const Count& count = counts_[slot];
    if (count.held == 0) continue;
    if (count.since <= before) {
      pass_on_by_rank(slot);
    } else {
      oldest_ = std::min(oldest_, count.since);
    }
  }
}

}  // namespace kolo
