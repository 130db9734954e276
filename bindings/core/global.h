// Shared parts of the core binding: the one Runtime, and errors that become exceptions. Private to
// bindings/core; any thread.
#pragma once

#include "runtime/base/in_call.h"
#include "runtime/cycle/runtime.h"

#include <kolo/kolo.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace kolo {

/// Keeps the runtime alive during one call of this thread.
class RuntimeCall {
 public:
  /// Throws kShutdown, naming the call, before init() and after shutdown().
  explicit RuntimeCall(std::string_view call);
  Runtime* operator->() const { return runtime_.get(); }

 private:
  const InCall in_call_;  // constructed before the lock that finds the runtime is taken
  const std::shared_ptr<Runtime> runtime_;
};

inline RuntimeCall runtime_for(std::string_view call) { return RuntimeCall(call); }

/// Runtime::driver_of_small_calls() of the runtime that runtime_for() last gave to this thread, or
/// null if the runtime has changed since. Only calls of this thread replace the pointer.
Driver* known_driver();

/// ProcessSet::id() of the first handle of split_world(). The runtime's own numbers are smaller.
inline constexpr std::uint32_t kFirstSplit = std::uint32_t{1} << 31;

/// The runtime's number of the set that a handle of split_world() names in this world.
std::uint32_t number_of_split(std::uint32_t handle);

/// The runtime's number of a set.
inline std::uint32_t number_of(const ProcessSet& set) {
  return set.id() < kFirstSplit ? set.id() : number_of_split(set.id());
}

/// Throws. While another thread ends the process, kShutdown is thrown with a delay. The process has
/// usually ended by then; an uncaught exception would end it abnormally instead.
[[noreturn]] void raise(Error error);

template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) raise(std::move(result).error());
  return *std::move(result);
}

inline void throw_if_failed(Status status) {
  if (!status.ok()) raise(std::move(status).error());
}

}  // namespace kolo
