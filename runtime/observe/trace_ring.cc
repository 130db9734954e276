#include "runtime/observe/trace_ring.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kolo {

TraceRing::TraceRing(std::size_t capacity)
    : capacity_(capacity), bytes_(std::make_unique_for_overwrite<std::byte[]>(capacity)) {
  KOLO_CHECK(std::has_single_bit(capacity));
}

void TraceRing::push(const TraceRecord& record, std::string_view text) {
  text = text.substr(0, kMaxText);
  const std::size_t bytes = sizeof(Header) + text.size();
  const std::uint64_t at = written_.load(std::memory_order_relaxed);
  if (at + bytes - read_seen_ > capacity_) {
    read_seen_ = read_.load(std::memory_order_acquire);
    if (at + bytes - read_seen_ > capacity_) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
  }
  const Header header{record, static_cast<std::uint32_t>(text.size())};
  copy_in(at, &header, sizeof header);
  copy_in(at + sizeof header, text.data(), text.size());
  written_.store(at + bytes, std::memory_order_release);
}

std::uint64_t TraceRing::take(std::uint64_t at) {
  Header header;
  copy_out(at, &header, sizeof header);
  record_ = header.record;
  text_.resize(header.text_bytes);
  copy_out(at + sizeof header, text_.data(), text_.size());
  return at + sizeof header + text_.size();
}

void TraceRing::copy_in(std::uint64_t at, const void* from, std::size_t bytes) {
  if (bytes == 0) return;  // an empty text may have a null address
  const std::size_t offset = at & (capacity_ - 1);
  const std::size_t first = std::min(bytes, capacity_ - offset);
  std::memcpy(bytes_.get() + offset, from, first);
  std::memcpy(bytes_.get(), static_cast<const std::byte*>(from) + first, bytes - first);
}

void TraceRing::copy_out(std::uint64_t at, void* to, std::size_t bytes) const {
  if (bytes == 0) return;
  const std::size_t offset = at & (capacity_ - 1);
  const std::size_t first = std::min(bytes, capacity_ - offset);
  std::memcpy(to, bytes_.get() + offset, first);
  std::memcpy(static_cast<std::byte*>(to) + first, bytes_.get(), bytes - first);
}

}  // namespace kolo
