// What the algorithms that move data in chunks share: their options, the cutting into chunks, and
// the window that bounds the posted messages. Used by the algorithms in this folder.
#pragma once

#include "runtime/base/check.h"
#include "runtime/collectives/schedule.h"
#include "runtime/collectives/split.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace kolo {

struct PipelineOptions {
  std::uint64_t chunk_elements = 64 << 10;  ///< largest message
  int chunks_in_flight = 4;                 ///< messages of one direction posted at a time
};

/// A range cut into near-equal, non-empty pieces of at most `largest` elements. If `largest` is a
/// multiple of a cache line, the borders are too, counted from the range's begin.
class Pieces {
 public:
  Pieces(Interval whole, std::uint64_t largest)
      : whole_(whole),
        granule_(largest % kCacheLineElements == 0 ? kCacheLineElements : 1),
        count_(count_of(whole, largest)) {}

  std::uint32_t count() const { return static_cast<std::uint32_t>(count_); }
  /// Empty from count() on.
  Interval operator[](std::uint64_t i) const {
    return i < count_ ? split(whole_, count_, i, granule_) : Interval{whole_.begin, 0};
  }

 private:
  static std::uint64_t count_of(Interval whole, std::uint64_t largest) {
    KOLO_CHECK(largest > 0);
    const std::uint64_t count = whole.length / largest + (whole.length % largest != 0 ? 1 : 0);
    KOLO_CHECK(count < UINT32_MAX);  // tags are 32 bits wide
    return count;
  }

  Interval whole_;
  std::uint64_t granule_;
  std::uint64_t count_;
};

/// The last few messages of one direction. The next message waits for the oldest of them.
class MessageWindow {
 public:
  explicit MessageWindow(int messages)
      : recent_(static_cast<std::size_t>(messages), ScheduleBuilder::kNoStep) {
    KOLO_CHECK(messages > 0);
  }

  /// The step that the next message must wait for; kNoStep while the window is not full.
  StepId gate() const { return recent_[oldest_]; }
  void push(StepId message) {
    recent_[oldest_] = message;
    oldest_ = (oldest_ + 1) % recent_.size();
  }

 private:
  std::vector<StepId> recent_;
  std::size_t oldest_ = 0;
};

/// Ranges of these lengths, laid end to end.
inline std::vector<Interval> end_to_end(std::span<const std::uint64_t> lengths) {
  std::vector<Interval> parts;
  std::uint64_t begin = 0;
  for (const std::uint64_t length : lengths) {
    parts.push_back({begin, length});
    begin += length;
  }
  return parts;
}

inline std::uint64_t sum_of(std::span<const std::uint64_t> lengths) {
  std::uint64_t sum = 0;
  for (const std::uint64_t length : lengths) sum += length;
  return sum;
}

/// Calls visit(peer, i, piece) for the i-th piece of every other rank's part, in turn, starting
/// behind `rank`. So all its connections stay busy. `parts` is indexed by rank.
template <class Visit>
void for_each_in_turn(int rank, std::span<const Interval> parts, std::uint64_t largest,
                      Visit&& visit) {
  std::vector<Pieces> pieces;
  std::uint32_t most = 0;
  for (const Interval part : parts) {
    pieces.emplace_back(part, largest);
    most = std::max(most, pieces.back().count());
  }
  const auto size = static_cast<int>(parts.size());
  for (std::uint32_t i = 0; i < most; ++i)
    for (int k = 1; k < size; ++k) {
      const int peer = (rank + k) % size;
      const Interval piece = pieces[static_cast<std::size_t>(peer)][i];
      if (piece.length > 0) visit(peer, i, piece);
    }
}

inline Operand input_at(Interval part) { return {Space::kInput, -1, part.begin, part.length}; }
inline Operand output_at(Interval part) { return {Space::kOutput, -1, part.begin, part.length}; }

}  // namespace kolo
