// What users of a group have registered to be told of its works: c10d's completion and abort hooks
// (torch/csrc/distributed/c10d/Hooks.hpp). torch's FlightRecorderHook is such a user.
//
// Any thread. A hook runs without the lock, because its user removes hooks with locks held that the
// hook may take. So a hook that runs already may still run once it is removed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace kolo::c10d_binding {

template <typename... Arguments>
class Hooks {
 public:
  using Hook = std::function<void(Arguments...)>;

  void set(std::int64_t id, Hook hook) {
    const std::lock_guard lock(mutex_);
    hooks_[id] = std::move(hook);
    is_empty_.store(false, std::memory_order_release);
  }
  void remove(std::int64_t id) {
    const std::lock_guard lock(mutex_);
    hooks_.erase(id);
    is_empty_.store(hooks_.empty(), std::memory_order_release);
  }
  bool empty() const { return is_empty_.load(std::memory_order_acquire); }
  void call(Arguments... arguments) const {
    if (empty()) return;
    std::vector<Hook> hooks;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
    }
    for (const Hook& hook : hooks) hook(arguments...);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, Hook> hooks_;
  std::atomic<bool> is_empty_ = true;  ///< most groups have no hooks, which costs no lock
};

/// Hooks of a group.
struct GroupHooks {
  Hooks<std::uint64_t> completion;  ///< called with the key of a work that has succeeded
  /// Called when a work has failed, but for the end of the world, and before an abort.
  Hooks<> abort;
};

}  // namespace kolo::c10d_binding
