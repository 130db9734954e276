// Blacklist: hosts on which the processes of an elastic job fail again and again. Such a host is
// not used for a time that doubles, and after several failures not any more. Pure. Used by Roster.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace kolo::run {

class Blacklist {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The first cool-down; each further one takes twice as long.
  static constexpr std::chrono::seconds kCoolDown{5};
  /// Failures in a row after which the host is not used any more.
  static constexpr int kMostFailures = 8;

  /// Returns what follows, for people; empty while the host cools down anyway, as when several
  /// processes fail at once.
  std::string note_failure(const std::string& host, Time now);
  /// The host works: a process on it has come into a world.
  void note_success(const std::string& host) { hosts_.erase(host); }

  bool is_usable(const std::string& host, Time now) const;
  /// The host is not used any more.
  bool is_out(const std::string& host) const;
  /// "not used for 5 s", "not used any more"; empty for a host that may be used.
  std::string state_of(const std::string& host, Time now) const;

 private:
  struct Record {
    int failures = 0;  ///< in a row
    Time usable_at = {};
  };

  std::map<std::string, Record> hosts_ = {};
};

}  // namespace kolo::run
