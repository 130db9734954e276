// What is still to come in simulated time, in a fixed order. Used by play.cc only.
#pragma once

#include "runtime/collectives/schedule.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kolo::simulate {

/// Either a rank's core has ended a step, or its message has gone, has come to a link up or down
/// between switches, or is coming. The order of events
/// of one time depends on nothing that differs between hosts.
struct Event {
  enum class What : std::uint8_t { kCore, kLeft, kUp, kDown, kComing, kThere };

  double at = 0;
  std::uint64_t order = 0;  ///< What, the rank on its host, and the step
  std::uint32_t rank = 0;
  bool across = false;  ///< the message comes from another host

  What what() const { return static_cast<What>(order >> 48); }
  StepId step() const { return static_cast<StepId>(order); }
  bool before(const Event& other) const {
    if (at != other.at) return at < other.at;
    return order != other.order ? order < other.order : rank < other.rank;
  }
};

/// The first event comes out first. A heap of four children a node: half as many cache misses as
/// std::priority_queue.
class Events {
 public:
  bool empty() const { return heap_.empty(); }

  void push(const Event& event) {
    std::size_t at = heap_.size();
    heap_.push_back(event);
    for (; at > 0 && event.before(heap_[(at - 1) / kChildren]); at = (at - 1) / kChildren)
      heap_[at] = heap_[(at - 1) / kChildren];
    heap_[at] = event;
  }

  Event pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return first;
    std::size_t at = 0;
    for (;;) {
      const std::size_t begin = at * kChildren + 1;
      const std::size_t end = std::min(begin + kChildren, heap_.size());
      std::size_t least = begin;
      for (std::size_t child = begin + 1; child < end; ++child)
        if (heap_[child].before(heap_[least])) least = child;
      if (begin >= heap_.size() || !heap_[least].before(last)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = last;
    return first;
  }

 private:
  static constexpr std::size_t kChildren = 4;
  std::vector<Event> heap_;
};

}  // namespace kolo::simulate
