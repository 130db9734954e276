// FiniteCheck: looks for NaN and infinity in what this rank gives to a reduction, before it is
// reduced (KOLO_CHECK_FINITE). The thread of the user calls it for each reduction, in order or not.
#pragma once

#include "runtime/base/log.h"
#include "runtime/submission/entry.h"

#include <kolo/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace kolo {

/// The values that are not finite. Complex elements have two values each.
struct NonFinite {
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::uint64_t first = 0;  ///< index of the first element that has one
};
/// All zero for a type that has none. Memory speed if there are none.
NonFinite find_non_finite(DataType type, const std::byte* data, std::uint64_t elements);

/// Any thread.
class FiniteCheck {
 public:
  /// `mode`: KOLO_CHECK_FINITE. `log` outlives this.
  FiniteCheck(std::string_view mode, const Log& log)
      : mode_(mode == "error"  ? Mode::kError
              : mode == "warn" ? Mode::kWarn
                               : Mode::kOff),
        log_(log) {}

  bool on() const { return mode_ != Mode::kOff; }
  /// With "error", what is wrong with the call; empty if nothing is. With "warn", always empty: the
  /// log has it, at most one line in kQuiet.
  std::string look(const Submission& call);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Mode : std::uint8_t { kOff, kWarn, kError };
  static constexpr std::chrono::seconds kQuiet{10};

  void warn(const Submission& call, const std::string& what);
  void tell_of_device();

  const Mode mode_;
  const Log& log_;
  std::mutex mutex_;
  Clock::time_point next_line_ = {};  ///< guarded by mutex_
  std::uint64_t unsaid_ = 0;          ///< guarded by mutex_: calls without a line since the last
  bool told_of_device_ = false;       ///< guarded by mutex_
};

}  // namespace kolo
