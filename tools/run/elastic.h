// Elastic: what an elastic job asks of Job: which processes to start and to end, and whether the
// loss of one ends the job. It joins the Roster, the store's Lobby and the host discovery. Used by
// Job, on kolo-run's main thread.
#pragma once

#include "runtime/bootstrap/tcp_store_server.h"
#include "tools/run/discovery.h"
#include "tools/run/process.h"
#include "tools/run/roster.h"

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kolo::run {

struct ElasticOptions {
  Roster::Limits limits = {};
  std::string discovery = {};  ///< program that lists the hosts; empty: they stay
  bool by_ssh = true;          ///< names of hosts are the system's
  /// How long the others wait for a rank before it is killed.
  std::chrono::seconds patience = std::chrono::seconds(60);
};

class Elastic {
 public:
  using Clock = Discovery::Clock;

  struct Orders {
    std::vector<Place> start = {};
    std::vector<int> end = {};                 ///< processes to be asked to end
    std::vector<int> kill = {};                ///< processes to be killed: they are lost
    std::vector<int> dismiss = {};             ///< processes to be killed: nobody needs them
    std::vector<std::string> lines = {};       ///< for people
    std::optional<std::string> gives_up = {};  ///< why the job ends
  };

  Elastic(ElasticOptions options, std::vector<Host> hosts, TcpStoreServer& lobby);

  /// Processes that the job begins with; before the first one runs.
  void begin(const std::vector<Place>& places);
  /// What is to be done now. The caller does it, and prints the lines.
  Orders orders();
  /// A process has ended; `end`: how. Returns whether the job goes on. `line`: why, for people.
  bool note_end(const Process& process, Roster::End end, std::string& line);
  /// See Discovery::take_end().
  void take_child(pid_t pid, int status);

  /// A rank has done its training, so that nothing more is to be started.
  bool is_over() const { return is_over_; }
  /// The job goes on although no process may be living.
  bool waits() const { return !is_over_ && roster_.waits(); }

 private:
  void look_for_hosts(Clock::time_point now, Orders& orders);
  /// Ends those for which the others have waited long enough.
  void kill_late(Orders& orders);

  const ElasticOptions options_;
  TcpStoreServer& lobby_;
  Roster roster_;
  std::optional<Discovery> discovery_ = {};
  std::vector<Host> listed_ = {};  ///< as the discovery has named them last
  std::set<int> killed_ = {};      ///< processes that came too late
  bool has_changed_ = true;        ///< since the last orders
  Clock::time_point next_look_ = {};
  bool is_over_ = false;
};

}  // namespace kolo::run
