// Exchange: the two-shot, in which each rank sums a share of all inputs. Memory in the arena is
// read and written in place; other memory goes through the control segments.
#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/exchange/exchange.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace kolo {
namespace {

constexpr std::uint64_t kNowhere = ControlSegment::BufferOffsets::kNowhere;
/// Most calls to skip after a declined one: each try of a large call on private memory costs time.
constexpr std::uint64_t kLongestPause = 1024;

}  // namespace

std::uint64_t Exchange::share_begin(std::size_t rank) const {
  const std::uint64_t ranks = segments_.size();
  const std::uint64_t line = kCacheLine / size_of(request_.type);
  const std::uint64_t share = round_up(ceil_div(request_.count, ranks), line);
  return std::min(rank * share, request_.count);
}

void Exchange::publish_offsets() {
  offsets_ = {};
  const std::size_t bytes = request_.bytes();
  if (bytes <= ControlSegment::kLargestInLine) return;
  // Where ranks wait for cores, a second flag costs more than the copies, except in place. Such a
  // rank publishes that it has no memory in the arena, which all ranks see.
  const bool pays =
      limits_.has_cores || !depends_on_offsets(request_) || request_.input == request_.output;
  const auto offset_of_memory = [&](const std::byte* memory) {
    return !pays || window_.arena() == nullptr
               ? kNowhere
               : window_.arena()->offset_of(memory, bytes).value_or(kNowhere);
  };
  if (request_.prescale.is_identity()) offsets_.input = offset_of_memory(request_.input);
  offsets_.output = offset_of_memory(request_.output);
  std::memcpy(slot_of(own()).in_line, &offsets_, sizeof offsets_);
}

Status Exchange::find_buffers() {
  const std::size_t bytes = request_.bytes();
  const bool have_offsets = bytes > ControlSegment::kLargestInLine;
  for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
    ControlSegment::BufferOffsets offsets;
    if (have_offsets) std::memcpy(&offsets, slot_of(rank).in_line, sizeof offsets);
    const std::span<std::byte> window =
        window_.windows()[static_cast<std::size_t>(communicator_.ranks()[rank])];
    for (const auto& [offset, memory] : {std::pair(offsets.input, &buffers_.inputs[rank]),
                                         std::pair(offsets.output, &buffers_.outputs[rank])}) {
      *memory = offset == kNowhere ? nullptr : window.data() + offset;
      if (offset == kNowhere || (offset <= window.size() && bytes <= window.size() - offset))
        continue;
      return KOLO_ERROR(
          kInternal, "rank {}: the {} bytes at {} of rank {} are not within its window of {}",
          communicator_.world().rank(), bytes, offset, communicator_.ranks()[rank], window.size());
    }
  }
  if (depends_on_offsets(request_)) were_mapped_ = all_mapped();
  return {};
}

bool Exchange::all_mapped() const {
  const auto is_null = [](const std::byte* memory) { return memory == nullptr; };
  return std::none_of(buffers_.inputs.begin(), buffers_.inputs.end(), is_null) &&
         std::none_of(buffers_.outputs.begin(), buffers_.outputs.end(), is_null);
}

bool Exchange::must_decline() const { return request_.bytes() > limits_.copied && !all_mapped(); }

void Exchange::decline() {
  state_ = State::kDeclined;
  retry_.next = request_.sequence + 1 + retry_.pause;
  retry_.pause = std::min(2 * retry_.pause, kLongestPause);
}

Status Exchange::publish_sum() {
  const std::size_t element = size_of(request_.type);
  const std::size_t begin = share_begin(own()) * element;
  const std::uint64_t count = share_begin(own() + 1) - share_begin(own());
  ControlSegment::Slot& slot = slot_of(own());
  bool all_mapped = true;
  buffers_.destinations = {request_.output + begin};
  std::optional<UsersMemory::Touch> touch;
  for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
    const bool is_own = rank == own();
    if (is_own && request_.prescale.is_identity()) {
      buffers_.sources[rank] = request_.input + begin;
    } else {
      buffers_.sources[rank] =
          (buffers_.inputs[rank] != nullptr ? buffers_.inputs[rank] : data_of(rank)) + begin;
    }
    if (is_own) continue;
    if (buffers_.outputs[rank] != nullptr)
      buffers_.destinations.push_back(buffers_.outputs[rank] + begin);
    all_mapped &= buffers_.outputs[rank] != nullptr;
    if (buffers_.inputs[rank] == nullptr && buffers_.outputs[rank] == nullptr) continue;
    if (!touch) touch.emplace(window_.users_memory());
    KOLO_TRY(window_.users_memory().check(communicator_.ranks()[rank]));
  }
  if (count > 0) {
    device_.reduce(request_.type, request_.op, buffers_.destinations, buffers_.sources, count,
                   request_.postscale, Stores::kCached);
    if (!all_mapped) std::memcpy(slot.sum, request_.output + begin, count * element);
  }
  slot.summed.store(wait_.flag, std::memory_order_release);
  if (request_.bytes() > limits_.copied) retry_.pause = 1;
  return {};
}

void Exchange::fetch_sums() {
  if (buffers_.outputs[own()] != nullptr) return;  // the other ranks have written to the output
  const std::size_t element = size_of(request_.type);
  for (std::size_t rank = 0; rank < segments_.size(); ++rank) {
    if (rank == own()) continue;
    const std::uint64_t begin = share_begin(rank);
    const std::uint64_t count = share_begin(rank + 1) - begin;
    if (count == 0) continue;
    std::memcpy(request_.output + begin * element, slot_of(rank).sum, count * element);
  }
}

}  // namespace kolo
