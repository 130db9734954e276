// Abort: the communicator's first failure, kept for good (after torchcomms' Abort). The first
// raise() wins; later ones change nothing. The class lives in base, not in health, because every
// blocking wait takes one, also in the transport. Any thread may raise or read.
#pragma once

#include "runtime/base/check.h"

#include <atomic>
#include <mutex>
#include <optional>

namespace kolo {

class Abort {
 public:
  static constexpr int kNoCulprit = -1;

  /// Records the failure if none is recorded yet. Returns true if this call was the first.
  bool raise(Error error, int culprit = kNoCulprit);

  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }

  /// The first failure. Precondition: raised().
  const Error& error() const;
  /// The rank that caused the failure, or kNoCulprit. Precondition: raised().
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
