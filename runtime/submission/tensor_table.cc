#include "runtime/submission/tensor_table.h"

#include "runtime/base/check.h"
#include "runtime/submission/unnamed.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kolo {
namespace {

/// As many names that are not in flight are kept, since most come again in the next step.
constexpr std::size_t kFreeNames = 16384;

}  // namespace

TensorTable::TensorTable(Waker& waker, std::uint64_t batch_size)
    : waker_(waker), batch_size_(batch_size) {}

Status TensorTable::submit(std::span<EntryPtr> entries, bool will_wait) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return *closed_;
    const bool named = !entries.front()->name.empty();
    if (named) {
      KOLO_TRY(take_names(entries));
    } else {
      give_names(entries);
    }
    if (entries_.empty()) first_came_at_ = std::chrono::steady_clock::now();
    for (EntryPtr& entry : entries) {
      if (entry->submitted_at == decltype(entry->submitted_at)())
        entry->submitted_at = first_came_at_;
      if (entry->signature.kind == OperationKind::kJoin && !wait_for_name_.empty()) {
        held_join_ = std::move(entry);
      } else if (named || take_name(entry->name)) {
        wake |= enqueue(std::move(entry));
      } else {
        wait_for_name_[entry->name].push_back(std::move(entry));
      }
    }
  }
  if (wake && !will_wait) waker_.wake();
  return {};
}

Status TensorTable::take_names(std::span<const EntryPtr> entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string& name = entries[i]->name;
    if (take_name(name)) continue;
    for (const EntryPtr& taken : entries.first(i)) give_back_name(taken->name);
    return KOLO_ERROR(kInvalidArgument,
                      "{} '{}': an operation of this name is in flight on this rank; wait for "
                      "it or give this one another name",
                      to_string(entries[i]->signature.kind), name);
  }
  return {};
}

void TensorTable::give_names(std::span<EntryPtr> entries) {
  const auto counted = failed_unnamed_.find(entries.front()->signature.kind);
  const std::uint64_t failed = counted == failed_unnamed_.end() ? 0 : counted->second;
  if (entries.size() == 1 && entries.front()->signature.group.empty()) {
    const Signature& signature = entries.front()->signature;
    const std::string base =
        entries.front()->by_order ? unnamed_base(signature.kind) : unnamed_base(signature, failed);
    entries.front()->name = unnamed_name(base, unnamed_[base]++);
    return;
  }
  std::vector<Signature> signatures;
  for (const EntryPtr& entry : entries) signatures.push_back(entry->signature);
  const std::string base = unnamed_group_base(signatures, failed);
  const std::string group = unnamed_name(base, unnamed_[base]++);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i]->signature.group = group;
    entries[i]->name = group + "/" + std::to_string(i);
  }
}

bool TensorTable::take_name(const std::string& name) {
  bool& taken = names_[name];
  if (taken) return false;
  taken = true;
  ++taken_;
  return true;
}

void TensorTable::give_back_name(const std::string& name) {
  const auto found = names_.find(name);
  if (found == names_.end() || !std::exchange(found->second, false)) return;
  --taken_;
  if (names_.size() > 2 * taken_ + kFreeNames)
    std::erase_if(names_, [](const auto& known) { return !known.second; });
}

bool TensorTable::enqueue(EntryPtr entry) {
  const std::uint64_t before = queued_bytes_;
  queued_bytes_ += entry->weight();
  if (entry->dropped) dropped_.insert(entry->name);
  const bool wake = entries_.empty() || (before < batch_size_ && queued_bytes_ >= batch_size_);
  entries_.push_back(std::move(entry));
  has_news_.store(true, std::memory_order_release);
  return wake;
}

void TensorTable::request_flush(bool wake) {
  {
    const std::lock_guard lock(mutex_);
    flush_ = true;
    has_news_.store(true, std::memory_order_release);
  }
  if (wake) waker_.wake();
}

bool TensorTable::drain(std::vector<EntryPtr>& entries) {
  if (!has_news_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  std::move(entries_.begin(), entries_.end(), std::back_inserter(entries));
  entries_.clear();
  has_news_.store(false, std::memory_order_relaxed);
  queued_bytes_ = 0;
  return std::exchange(flush_, false);
}

void TensorTable::release(const std::string& name) {
  const std::lock_guard lock(mutex_);
  release_locked(name);
}

void TensorTable::release(std::span<const EntryPtr> entries) {
  const std::lock_guard lock(mutex_);
  for (const EntryPtr& entry : entries)
    if (entry->work != nullptr) release_locked(entry->name);
}

void TensorTable::release_locked(const std::string& name) {
  if (!dropped_.empty()) dropped_.erase(name);
  const auto waiting = wait_for_name_.empty() ? wait_for_name_.end() : wait_for_name_.find(name);
  if (waiting == wait_for_name_.end()) return give_back_name(name);
  bool wake = enqueue(std::move(waiting->second.front()));
  waiting->second.pop_front();
  if (waiting->second.empty()) wait_for_name_.erase(waiting);
  if (wait_for_name_.empty() && held_join_ != nullptr) wake |= enqueue(std::move(held_join_));
  flush_ = true;  // a caller may be waiting for this entry already
  // The thread that drives the cycle may be about to stop driving it.
  if (wake) waker_.wake();
}

void TensorTable::restart_unnamed() {
  const std::lock_guard lock(mutex_);
  unnamed_.clear();
  failed_unnamed_.clear();
}

void TensorTable::count_failed_unnamed(OperationKind kind) {
  const std::lock_guard lock(mutex_);
  ++failed_unnamed_[kind];
}

void TensorTable::close(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!closed_) closed_ = error;
  for (auto& [name, waiting] : wait_for_name_) {
    std::move(waiting.begin(), waiting.end(), std::back_inserter(entries_));
  }
  wait_for_name_.clear();
  if (held_join_ != nullptr) entries_.push_back(std::move(held_join_));
  has_news_.store(true, std::memory_order_release);
}

std::size_t TensorTable::in_flight() const {
  const std::lock_guard lock(mutex_);
  return taken_ - dropped_.size();
}

}  // namespace kolo
