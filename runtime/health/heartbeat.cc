#include "runtime/health/heartbeat.h"

#include <algorithm>

namespace kolo {
namespace {

/// A silence counts from the first look after the last arrival, and is found by a look.
constexpr std::chrono::milliseconds kPause{200};

}  // namespace

Heartbeat::Heartbeat(std::chrono::seconds timeout)
    : timeout_(timeout),
      interval_(timeout_ / 4),
      pause_(std::min<Clock::duration>(interval_, kPause)) {}

void Heartbeat::begin(Clock::time_point now) {
  // A rank that was stopped (a whole job by Ctrl-Z) has heard nothing because it did not listen.
  const bool has_slept = next_ != Clock::time_point::min() && now >= next_ + interval_;
  if (has_slept) {
    for (auto& [rank, peer] : peers_) peer.heard_at = now;
  }
  next_ = now + pause_;
}

void Heartbeat::look_at(int rank, Clock::time_point now, LinkActivity activity,
                        Findings& findings) {
  Peer& peer = peers_[rank];
  if (activity.opened && now >= peer.beat_at) {
    findings.beat.push_back(rank);
    peer.beat_at = now + interval_;
  }
  if (!peer.expected || activity.arrivals != peer.arrivals) {
    peer.arrivals = activity.arrivals;
    peer.heard_at = now;
    return;
  }
  const auto silence = now - peer.heard_at;
  if (silence < timeout_) return;
  findings.silent.push_back({rank, std::chrono::duration_cast<std::chrono::seconds>(silence)});
}

}  // namespace kolo
