// Roster: decides which processes an elastic job has, and on which hosts. Pure: it starts nothing,
// and the time is given. Used by Elastic, on kolo-run's main thread.
//
//   Roster roster({.first = 2, .least = 1, .most = 4}, hosts);
//   roster.adopt(places);                       // what the job begins with
//   roster.set_hosts(hosts_now);                // when hosts have come or gone
//   roster.note_end(2, Roster::End::kFailed, /*was_in_world=*/true, now);
//   const auto decision = roster.decide(world, grows, now);  // what to start and to end
//
// - A slot whose process has failed is used again only if a restart is left. When its host leaves
//   the list and comes back, all its slots are new.
// - A process on a host that is not listed any more, or beyond its slots, is asked to end; that is
//   no failure. The last process of the world stays until one of another host is in the world:
//   otherwise the training's state would be lost.
// - Failures that speak against a host (Blacklist): no login, a broken connection, and a process
//   that ends before it was in a world.
#pragma once

#include "tools/run/blacklist.h"
#include "tools/run/placement.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace kolo::run {

class Roster {
 public:
  using Time = Blacklist::Time;

  struct Limits {
    int first = 0;                   ///< processes until others may join
    int least = 0;                   ///< --min-np
    int most = 0;                    ///< --max-np
    int restarts = 0;                ///< --restarts, for the whole job
    bool finds_hosts = false;        ///< further hosts may come: --host-discovery
    std::chrono::seconds wait = {};  ///< --elastic-timeout
    Mapping mapping = Mapping::kSlot;
  };

  enum class End : std::uint8_t {
    kDone,     ///< it has done its work
    kAsked,    ///< it was asked to end
    kNoLogin,  ///< its host did not let kolo-run in, so the program never ran
    kCut,      ///< the connection to its host broke
    kFailed,
  };

  struct Decision {
    std::vector<Place> start = {};
    std::vector<int> end = {};                 ///< processes to be asked to end
    std::vector<std::string> lines = {};       ///< what was decided, for people
    std::optional<std::string> gives_up = {};  ///< why the job ends
  };

  Roster(Limits limits, std::vector<Host> hosts)
      : limits_(limits),
        restarts_left_(limits.restarts),
        finds_hosts_(limits.finds_hosts),
        hosts_(std::move(hosts)) {}

  /// Processes that the job begins with.
  void adopt(const std::vector<Place>& places);
  void set_hosts(std::vector<Host> hosts);
  /// Whether further hosts may come; at first Limits::finds_hosts.
  void expect_hosts(bool may_come) { finds_hosts_ = may_come; }
  /// Returns what follows for the host, for people; empty: nothing.
  std::string note_end(int process, End end, bool was_in_world, Time now);
  /// The training is over: nothing more is started.
  void finish() { is_over_ = true; }

  /// `world`: processes of the present world. `grows`: the program is known to be elastic, so that
  /// processes may join it.
  Decision decide(const std::set<int>& world, bool grows, Time now);

  /// Processes that live and were not asked to end.
  int size() const;
  std::vector<Place> places() const;  ///< all that live
  /// Whether enough processes live without this host's.
  bool has_other_host(const std::string& host) const;
  int restarts_left() const { return restarts_left_; }
  /// Whether enough processes live, or may still be started.
  bool may_have_enough(bool grows) const;
  /// There are too few processes, and others may come.
  bool waits() const { return waits_since_.has_value(); }
  /// "a (2 slots), b (2 slots, not used for 5 s)".
  std::string describe_hosts(Time now) const;

 private:
  struct Member {
    Place place;
    bool was_in_world = false;
    bool is_leaving = false;  ///< it was asked to end
    bool is_kept = false;     ///< it stays only because it is the last of the world
  };

  void end_surplus(const std::set<int>& world, Decision& decision);
  void start_missing(bool has_world, bool grows, Time now, Decision& decision);
  void await_least(bool grows, Time now, Decision& decision);
  /// How many more processes the job may have.
  int missing(bool grows) const;
  int free_slots(const Host& host) const;
  const Host* find(const std::string& name) const;
  const Host* choose(Time now) const;
  Place place_on(const Host& host);

  const Limits limits_;
  int restarts_left_;
  bool finds_hosts_;
  std::vector<Host> hosts_;
  Blacklist blacklist_ = {};
  std::map<int, Member> members_ = {};     ///< living processes, by number
  std::map<std::string, int> spent_ = {};  ///< by host: slots that are not used again
  int next_process_ = 0;
  bool is_over_ = false;
  bool has_done_ = false;  ///< a process has ended with 0
  std::optional<Time> waits_since_ = {};
};

}  // namespace kolo::run
