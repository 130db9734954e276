// HealthCheck: the cycle's own checks: ranks that are lost or have left while something waits for
// them, deadlines, and calls that do not fit. Member of Cycle; token holder only.
#pragma once

#include "runtime/cycle/context.h"
#include "runtime/health/heartbeat.h"
#include "runtime/health/process_watch.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

class Group;

class HealthCheck {
 public:
  using Clock = std::chrono::steady_clock;
  /// Called with a rank of the world that is lost, and why.
  using OnLost = std::function<void(int rank, const Error& error, Loss loss)>;

  HealthCheck(CycleContext& context, const Log& log, OnLost on_lost);

  /// Once a pass, which began `now`. The cheap checks always, the others every 200 ms.
  void check(Clock::time_point now);
  /// Before the first step: reports ranks whose process has ended meanwhile.
  void check_processes();
  /// The ranks of this host whose processes have ended since the last call. The transport forgets
  /// them.
  std::vector<int> take_ended();
  /// A beat of a rank of the world has arrived.
  void on_beat(int rank) { heartbeat_.on_beat(rank); }

  /// What to say of this rank where the others have given it up: that it has not run for long.
  std::string describe_pause();

  /// Descriptor of the watched processes; negative if there are none. If readable: check_soon().
  int watched_descriptor() const { return watch_.descriptor(); }
  /// The next check() is a timed one.
  void check_soon() { next_check_ = Clock::time_point::min(); }
  Clock::time_point next_check() const { return next_check_; }

 private:
  void note_pause(Clock::time_point now);
  void check_heartbeats(Clock::time_point now);
  void check(Group& group, Clock::time_point now, bool check_time);
  void check_departures(Group& group);
  void check_deadlines(Group& group, Clock::time_point now);
  void report_stalls(const Group& group, Clock::time_point now) const;
  void check_slots(Group& group, Clock::time_point now);
  void check_held(Group& group, Clock::time_point now);
  void check_held_by_departure(Group& group);
  void find_absent(Group& group);
  std::chrono::seconds operation_timeout() const;

  CycleContext& context_;
  const Log& log_;
  const OnLost on_lost_;
  ProcessWatch watch_;
  Heartbeat heartbeat_;
  Clock::time_point next_check_;
  std::optional<Clock::time_point> looked_at_;  // the latest timed check
  struct Pause {
    Clock::time_point end = {};
    std::chrono::seconds length = {};
  };
  Pause pause_;                                                  // the latest long one
  Clock::time_point looked_before_ = Clock::time_point::min();   // and the one before
  Clock::time_point deadlines_from_ = Clock::time_point::min();  // no deadline expires before
};

}  // namespace kolo
