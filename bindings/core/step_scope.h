// Operations that belong to a step of training: ranks whose operations of one name are of different
// steps get an error in place of a result (Entry::step). For the bindings; any thread.
#pragma once

#include <kolo/export.h>
#include <kolo/kolo.h>

#include <cstdint>
#include <utility>

namespace kolo {

/// What this thread submits by name until the scope's end belongs to `step`; 0: to none.
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

/// What kolo::synchronize() throws, kMismatch, on all ranks where they were at different steps.
class KOLO_API OutOfStep final : public Exception {
 public:
  OutOfStep(Error error, std::uint64_t latest) : Exception(std::move(error)), latest_(latest) {}
  /// The highest step of any rank.
  std::uint64_t latest() const { return latest_; }

 private:
  std::uint64_t latest_;
};

}  // namespace kolo
