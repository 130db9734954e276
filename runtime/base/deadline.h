// A point in time by which a blocking call must end. Value type.
#pragma once

#include <algorithm>
#include <chrono>

namespace kolo {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(Clock::duration duration) {
    const auto now = Clock::now();
    return duration < Clock::time_point::max() - now ? Deadline(now + duration) : never();
  }
  /// For any unit. A duration that the clock cannot count gives never().
  template <class Count, class Unit>
  static Deadline after(std::chrono::duration<Count, Unit> duration) {
    using Given = std::chrono::duration<Count, Unit>;
    if (duration >= std::chrono::floor<Given>(Clock::duration::max())) return never();
    return after(std::chrono::duration_cast<Clock::duration>(duration));
  }
  static Deadline at(Clock::time_point time) { return Deadline(time); }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool expired() const { return time_ != Clock::time_point::max() && Clock::now() >= time_; }
  Clock::time_point time() const { return time_; }

  /// The time left, between zero and `bound`: a safe argument for poll().
  Clock::duration remaining(Clock::duration bound) const {
    if (time_ == Clock::time_point::max()) return bound;
    return std::clamp(time_ - Clock::now(), Clock::duration::zero(), bound);
  }
  /// At most a week.
  Clock::duration remaining() const { return remaining(std::chrono::hours(24 * 7)); }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}
  Clock::time_point time_;
};

}  // namespace kolo
