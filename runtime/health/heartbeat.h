// Heartbeat: detects ranks that have gone silent although their process may live: a host or network
// went away while bytes were on their way, or a process was stopped. Each rank sends a beat over
// every link that it has opened, first at once, then four times per timeout. One of these goes to
// the next rank, so that ranks that share memory alone are heard of, too. A rank that has
// sent one beat is expected to be heard of until its shutdown notice. Pure logic over counters, so
// that tests need no clock; the cycle sends the beats. Token holder only.
//
// (Failure detection by timeout: Chandra and Toueg, "Unreliable failure detectors for reliable
// distributed systems", JACM 43(2), 1996. This detector is wrong about a process that does not run
// for the whole timeout, and its job ends. A rank that notices that it did not run itself accuses
// nobody.)
#pragma once

#include "transport/transport.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

namespace kolo {

class Heartbeat {
 public:
  using Clock = std::chrono::steady_clock;

  /// `timeout`: how long a rank may be silent.
  explicit Heartbeat(std::chrono::seconds timeout);

  /// `peer` has sent a beat: from now on it must be heard of.
  void on_beat(int peer) { peers_[peer].expected = true; }

  /// Whether it is time for look().
  bool due(Clock::time_point now) const { return now >= next_; }

  struct Silent {
    int rank;
    std::chrono::seconds duration;
  };
  struct Findings {
    std::vector<int> beat;       ///< ranks to send a beat to
    std::vector<Silent> silent;  ///< ranks that were silent for the timeout
  };
  /// `active`: Transport::active_peers(). `activity_of(rank)`: Transport::activity().
  /// `is_gone(rank)`: ranks that need no watching, which are this rank and those that have sent a
  /// shutdown notice.
  template <class ActivityOf, class IsGone>
  Findings look(Clock::time_point now, const std::vector<int>& active,
                const ActivityOf& activity_of, const IsGone& is_gone) {
    Findings findings;
    begin(now);
    for (const int rank : active) {
      if (!is_gone(rank)) look_at(rank, now, activity_of(rank), findings);
    }
    return findings;
  }

 private:
  struct Peer {
    Clock::time_point beat_at = Clock::time_point::min();  // next, once the link is open
    bool expected = false;
    std::uint64_t arrivals = 0;  // when it was last heard of
    Clock::time_point heard_at = {};
  };
  void begin(Clock::time_point now);
  void look_at(int rank, Clock::time_point now, LinkActivity activity, Findings& findings);

  const Clock::duration timeout_;
  const Clock::duration interval_;  ///< between beats
  const Clock::duration pause_;     ///< between looks
  std::map<int, Peer> peers_;       ///< by rank
  Clock::time_point next_ = Clock::time_point::min();
};

}  // namespace kolo
