// What the core binding's parts share: the one Runtime, and errors that become exceptions. Private
// to bindings/core; any thread.
#pragma once

#include "runtime/runtime.h"

#include <kolo/kolo.h>

#include <memory>
#include <string_view>
#include <utility>

namespace kolo {

/// Throws kShutdown, naming the call, before init() and after shutdown().
std::shared_ptr<Runtime> runtime_for(std::string_view call);

/// Runtime::driver_of_small_calls() of the runtime that runtime_for() gave this thread last, if it
/// is still the one; else null. Nobody else replaces it during a call of this thread.
Driver* known_driver();

[[noreturn]] inline void raise(Error error) { throw Exception(std::move(error)); }

template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) raise(std::move(result).error());
  return *std::move(result);
}

inline void throw_if_failed(Status status) {
  if (!status.ok()) raise(std::move(status).error());
}

}  // namespace kolo
