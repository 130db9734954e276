// Operations that belong to a training step. If operations of one name belong to different steps on
// different ranks, all ranks get an error (Entry::step). For the bindings; any thread.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <cstdint>
#include <utility>

namespace kolo {

/// Named operations that this thread submits until the scope ends belong to `step`; 0: to no step.
class KOLO_API StepScope {
 public:
  explicit StepScope(std::uint64_t step);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  static std::uint64_t current();

 private:
  const std::uint64_t before_;
};

/// Thrown by kolo::synchronize() on all ranks of an operation whose steps differed; code kMismatch.
class KOLO_API OutOfStep final : public Exception {
 public:
  OutOfStep(Error error, std::uint64_t latest) : Exception(std::move(error)), latest_(latest) {}
  /// The highest step of any rank.
  std::uint64_t latest() const { return latest_; }

 private:
  std::uint64_t latest_;
};

}  // namespace kolo
