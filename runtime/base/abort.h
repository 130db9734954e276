// Abort: the communicator's sticky first failure (after torchcomms' Abort). The first writer wins;
// everybody else reads. It lives in base and not in health because every wait below, in the
// transport too, takes one. Any thread may raise or read.
#pragma once

#include "runtime/base/check.h"

#include <atomic>
#include <mutex>
#include <optional>

namespace kolo {

class Abort {
 public:
  static constexpr int kNoCulprit = -1;

  /// Records the failure unless one is recorded; true if this call was the first.
  bool raise(Error error, int culprit = kNoCulprit);

  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }

  /// The first failure. Precondition: raised().
  const Error& error() const;
  /// The rank that caused it, or kNoCulprit. Precondition: raised().
  int culprit() const;

  /// Ok, or the first failure.
  Status status() const { return raised() ? Status(error()) : Status(); }

 private:
  std::atomic<bool> raised_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  int culprit_ = kNoCulprit;
};

}  // namespace kolo
