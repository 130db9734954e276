#include "runtime/bootstrap/memory_store.h"

#include "runtime/base/check.h"

namespace kolo {

Status MemoryStore::set(std::string_view key, std::string value) {
  {
    const std::lock_guard lock(mutex_);
    if (!values_.emplace(key, std::move(value)).second) {
      return KOLO_ERROR(kInvalidArgument, "store: key '{}' is set already", key);
    }
  }
  changed_.notify_all();
  return {};
}

Result<std::string> MemoryStore::set_once(std::string_view key, std::string value) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = values_.emplace(key, std::move(value));
  if (is_new) changed_.notify_all();
  return entry->second;
}

Result<std::string> MemoryStore::get(std::string_view key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto is_set = [&] { return values_.find(key) != values_.end(); };
  if (deadline.time() == Deadline::Clock::time_point::max()) {
    changed_.wait(lock, is_set);
  } else if (!changed_.wait_until(lock, deadline.time(), is_set)) {
    return KOLO_ERROR(kTimeout, "store: key '{}' was not set before the deadline", key);
  }
  return values_.find(key)->second;
}

}  // namespace kolo
