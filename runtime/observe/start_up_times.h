// StartUpTimes: how long each part of init took, for the log. Used by the thread that calls init.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

namespace kolo {

class StartUpTimes {
 public:
  /// `part`, which began when the one before ended, has ended now.
  void ended(std::string_view part) {
    const Clock::time_point now = Clock::now();
    parts_ += fmt::format("{}{} {:.1f}", parts_.empty() ? "" : ", ", part,
                          Milliseconds(now - last_).count());
    last_ = now;
  }
  /// "62.5 ms: meeting 3.1, network 11.2": without what came after the last part.
  std::string text() const {
    return fmt::format("{:.1f} ms: {}", Milliseconds(last_ - begin_).count(), parts_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;

  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  std::string parts_;
};

}  // namespace kolo
