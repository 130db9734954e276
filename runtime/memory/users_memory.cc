#include "runtime/memory/users_memory.h"

#include "runtime/base/check.h"

#include <thread>

namespace kolo {
namespace {

bool is_touching(std::uint64_t touches) { return (touches & 1) != 0; }

}  // namespace

void UsersMemory::open(int rank, std::vector<ControlSegment*> segments) {
  segments_ = std::move(segments);
  own_ = segments_[static_cast<std::size_t>(rank)];
}

void UsersMemory::close() {
  segments_.clear();
  own_ = nullptr;
}

// Dekker's algorithm: if one rank begins to touch while another gives back, at least one of them
// sees the other.
UsersMemory::Touch::Touch(const UsersMemory& memory) : touches_(memory.own_->touches) {
  touches_.fetch_add(1, std::memory_order_seq_cst);
}

UsersMemory::Touch::~Touch() { touches_.fetch_add(1, std::memory_order_release); }

UsersMemory::DeviceTouch::DeviceTouch(UsersMemory& memory)
    : memory_(memory), number_(memory.own_->device_touches.load(std::memory_order_relaxed)) {
  memory_.device_touches_.push_back(number_);
  memory_.own_->device_touches.store(number_ + 1, std::memory_order_seq_cst);
}

UsersMemory::DeviceTouch::~DeviceTouch() {
  auto& left = memory_.device_touches_;
  std::erase(left, number_);
  ControlSegment& own = *memory_.own_;
  const auto all = own.device_touches.load(std::memory_order_relaxed);
  own.device_touches_over.store(left.empty() ? all : left.front(), std::memory_order_release);
}

Status UsersMemory::check(int rank) const {
  if (has_given_back(rank))
    return KOLO_ERROR(kAborted, "rank {} has given up what it had under way", rank);
  return {};
}

void UsersMemory::give_back() {
  if (own_ != nullptr) own_->gave_back.store(true, std::memory_order_seq_cst);
}

// A touch that begins after these loads sees that the memory was given back.
void UsersMemory::await_others(Deadline deadline) const {
  for (const ControlSegment* const segment : segments_) {
    if (segment == nullptr || segment == own_) continue;
    const std::uint64_t seen = segment->touches.load(std::memory_order_seq_cst);
    const std::uint64_t of_device = segment->device_touches.load(std::memory_order_seq_cst);
    const auto is_over = [&] {
      const bool of_host_is_over =
          !is_touching(seen) || segment->touches.load(std::memory_order_acquire) != seen;
      return of_host_is_over &&
             segment->device_touches_over.load(std::memory_order_acquire) >= of_device;
    };
    while (!is_over() && !deadline.expired()) std::this_thread::yield();
  }
}

}  // namespace kolo
