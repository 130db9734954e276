// SegmentList: finds the pieces of memory that hold a range of elements. Called by the fusion stage
// (append) and the executor (look-up), on the thread that holds the progress token.
#include "runtime/execution/memory_binding.h"

namespace kolo {

void SegmentList::append(std::byte* data, std::uint64_t elements) {
  if (elements == 0) return;
  ends_.push_back(this->elements() + elements);
  segments_.push_back({data, elements});
}

void SegmentList::clear() {
  segments_.clear();
  ends_.clear();
  found_ = 0;
}

Segment SegmentList::rest_at(std::uint64_t offset, std::size_t element_size) const {
  if (offset >= elements()) return {};
  const std::size_t i = find(offset);
  const std::uint64_t left = ends_[i] - offset;
  if (segments_[i].data == nullptr) return {nullptr, left};
  return {segments_[i].data + (segments_[i].elements - left) * element_size, left};
}

std::size_t SegmentList::find(std::uint64_t offset) const {
  // Most look-ups hit the same segment again, or the next one.
  const auto holds = [&](std::size_t i) {
    return i < ends_.size() && offset < ends_[i] && (i == 0 || offset >= ends_[i - 1]);
  };
  if (holds(found_)) return found_;
  if (holds(found_ + 1)) return ++found_;
  found_ = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) -
                                    ends_.begin());
  return found_;
}

}  // namespace kolo
