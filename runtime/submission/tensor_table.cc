#include "runtime/submission/tensor_table.h"

#include "runtime/base/check.h"

#include <iterator>
#include <utility>

namespace kolo {

TensorTable::TensorTable(Waker& waker, std::uint64_t batch_size)
    : waker_(waker), batch_size_(batch_size) {}

Status TensorTable::submit(Entry entry, bool will_wait) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return *closed_;
    if (!names_.insert(entry.name).second) {
      return KOLO_ERROR(kInvalidArgument,
                        "{} '{}': an operation of this name is in flight on this rank; wait for it "
                        "or give this one another name",
                        to_string(entry.signature.kind), entry.name);
    }
    const std::uint64_t before = queued_bytes_;
    queued_bytes_ += entry.signature.bytes();
    wake = entries_.empty() || (before < batch_size_ && queued_bytes_ >= batch_size_);
    entry.submitted_at = std::chrono::steady_clock::now();
    entries_.push_back(std::move(entry));
  }
  if (wake && !will_wait) waker_.wake();
  return {};
}

void TensorTable::request_flush(bool wake) {
  {
    const std::lock_guard lock(mutex_);
    flush_ = true;
  }
  if (wake) waker_.wake();
}

bool TensorTable::drain(std::vector<Entry>& entries) {
  const std::lock_guard lock(mutex_);
  std::move(entries_.begin(), entries_.end(), std::back_inserter(entries));
  entries_.clear();
  queued_bytes_ = 0;
  return std::exchange(flush_, false);
}

void TensorTable::release(const std::string& name) {
  const std::lock_guard lock(mutex_);
  names_.erase(name);
}

void TensorTable::close(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = error;
}

std::size_t TensorTable::in_flight() const {
  const std::lock_guard lock(mutex_);
  return names_.size();
}

}  // namespace kolo
