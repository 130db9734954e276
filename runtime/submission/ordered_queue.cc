#include "runtime/submission/ordered_queue.h"

#include <iterator>
#include <utility>

namespace kolo {

Status OrderedQueue::submit(EntryPtr entry) {
  const std::lock_guard lock(mutex_);
  if (closed_) return *closed_;
  (is_message(*entry) ? messages_ : unfinished_).fetch_add(1, std::memory_order_release);
  entry->submitted_at = std::chrono::steady_clock::now();
  entries_.push_back(std::move(entry));
  return {};
}

void OrderedQueue::drain(std::vector<EntryPtr>& entries) {
  if (in_flight() == 0) return;
  const std::lock_guard lock(mutex_);
  std::move(entries_.begin(), entries_.end(), std::back_inserter(entries));
  entries_.clear();
}

void OrderedQueue::close(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = error;
}

}  // namespace kolo
