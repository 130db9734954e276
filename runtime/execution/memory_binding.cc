// SegmentList: finding the pieces of memory that a range of elements lies in. Called by the fusion
// stage (append) and the executor (look-up), on the thread that holds the progress token.
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
}

Segment SegmentList::rest_at(std::uint64_t offset, std::size_t element_size) const {
  if (offset >= elements()) return {};
  const std::size_t i = find(offset);
  const std::uint64_t left = ends_[i] - offset;
  if (segments_[i].data == nullptr) return {nullptr, left};
  return {segments_[i].data + (segments_[i].elements - left) * element_size, left};
}

std::size_t SegmentList::find(std::uint64_t offset) const {
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) -
                                  ends_.begin());
}

}  // namespace kolo
