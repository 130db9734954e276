// OneShot: the two-shot, in which each rank sums a share of all ranks' inputs. Memory of the arena
// is read and written where it lies; other memory goes through the slots.
#include "runtime/base/check.h"
#include "runtime/communicator/one_shot.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace kolo {
namespace {

constexpr std::uint64_t kNowhere = Board::Places::kNowhere;
/// Calls on private memory that are as large cost a look at it each time that they are tried.
constexpr std::uint64_t kLongestPause = 1024;

}  // namespace

std::uint64_t OneShot::share_begin(std::size_t rank) const {
  const std::uint64_t ranks = boards_.size();
  const std::uint64_t line = kCacheLine / size_of(request_.type);
  const std::uint64_t share = ((request_.count + ranks - 1) / ranks + line - 1) / line * line;
  return std::min(rank * share, request_.count);
}

void OneShot::publish_place() {
  places_ = {};
  const std::size_t bytes = request_.bytes();
  if (bytes <= Board::kLargestInLine) return;
  // Ranks that wait for cores lose more by a second flag than by copies, but in place: they say
  // that they have nothing there, and all see it.
  const bool pays = has_cores_ || !depends_on_places(request_) || request_.input == request_.output;
  const auto place_of = [&](const std::byte* memory) {
    return !pays || window_.arena() == nullptr
               ? kNowhere
               : window_.arena()->offset_of(memory, bytes).value_or(kNowhere);
  };
  if (request_.prescale.is_identity()) places_.input = place_of(request_.input);
  places_.output = place_of(request_.output);
  std::memcpy(slot_of(own()).line.data, &places_, sizeof places_);
}

Status OneShot::find_places() {
  const std::size_t bytes = request_.bytes();
  const bool are_placed = bytes > Board::kLargestInLine;
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    Board::Places places;
    if (are_placed) std::memcpy(&places, slot_of(rank).line.data, sizeof places);
    const std::span<std::byte> window =
        window_.windows()[static_cast<std::size_t>(communicator_.ranks()[rank])];
    for (const auto& [place, memory] :
         {std::pair(places.input, &inputs_[rank]), std::pair(places.output, &outputs_[rank])}) {
      *memory = place == kNowhere ? nullptr : window.data() + place;
      if (place == kNowhere || (place <= window.size() && bytes <= window.size() - place)) continue;
      return KOLO_ERROR(
          kInternal, "rank {}: the {} bytes at {} of rank {} are not within its window of {}",
          communicator_.world().rank(), bytes, place, communicator_.ranks()[rank], window.size());
    }
  }
  if (depends_on_places(request_)) were_mapped_ = all_mapped();
  return {};
}

bool OneShot::all_mapped() const {
  const auto is_null = [](const std::byte* memory) { return memory == nullptr; };
  return std::none_of(inputs_.begin(), inputs_.end(), is_null) &&
         std::none_of(outputs_.begin(), outputs_.end(), is_null);
}

bool OneShot::must_decline() const { return request_.bytes() > largest_ && !all_mapped(); }

void OneShot::decline() {
  declined_ = true;
  busy_ = false;
  next_try_ = request_.sequence + 1 + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

Status OneShot::publish_sum() {
  const std::size_t element = size_of(request_.type);
  const std::size_t begin = share_begin(own()) * element;
  const std::uint64_t count = share_begin(own() + 1) - share_begin(own());
  Board::Slot& slot = slot_of(own());
  bool all_mapped = true;
  destinations_ = {request_.output + begin};
  std::optional<UsersMemory::Touch> touch;
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    const bool is_own = rank == own();
    if (is_own && request_.prescale.is_identity()) {
      sources_[rank] = request_.input + begin;
    } else {
      sources_[rank] = (inputs_[rank] != nullptr ? inputs_[rank] : data_of(rank)) + begin;
    }
    if (is_own) continue;
    if (outputs_[rank] != nullptr) destinations_.push_back(outputs_[rank] + begin);
    all_mapped &= outputs_[rank] != nullptr;
    if (inputs_[rank] == nullptr && outputs_[rank] == nullptr) continue;
    if (!touch) touch.emplace(window_.users_memory());
    KOLO_TRY(window_.users_memory().check(communicator_.ranks()[rank]));
  }
  if (count > 0) {
    device_.reduce(request_.type, request_.op, destinations_, sources_, count, request_.postscale,
                   Stores::kCached);
    if (!all_mapped) std::memcpy(slot.sum, request_.output + begin, count * element);
  }
  slot.summed.store(awaited_, std::memory_order_release);
  if (request_.bytes() > largest_) pause_ = 1;
  return {};
}

void OneShot::fetch_sums() {
  if (outputs_[own()] != nullptr) return;  // the others have written there
  const std::size_t element = size_of(request_.type);
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    if (rank == own()) continue;
    const std::uint64_t begin = share_begin(rank);
    const std::uint64_t count = share_begin(rank + 1) - begin;
    if (count == 0) continue;
    std::memcpy(request_.output + begin * element, slot_of(rank).sum, count * element);
  }
}

}  // namespace kolo
