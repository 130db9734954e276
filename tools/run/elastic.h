// Elastic: what an elastic job asks of Job: which processes to start and to end, and whether the
// loss of one ends the job. The Leader decides; on further nodes (--nnodes) a Follower passes on
// what node 0's Leader says. Used by Job, on kolo-run's main thread.
#pragma once

#include "tools/run/discovery.h"
#include "tools/run/process.h"
#include "tools/run/roster.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace kolo::run {

/// Exit codes of a job that could not be started, and of one that took too long (as timeout(1)).
inline constexpr int kCannotStart = 2;
inline constexpr int kTimedOut = 124;

struct ElasticOptions {
  Roster::Limits limits = {};
  std::string discovery = {};  ///< program that lists the hosts; empty: they stay
  bool by_ssh = true;          ///< names of hosts are the system's
  /// How long the others wait for a rank before it is killed.
  std::chrono::seconds patience = std::chrono::seconds(60);
  /// With one kolo-run on each node: on node 0 the processes of the others that the job begins
  /// with. The n-th host is node n then.
  std::vector<Place> others = {};
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
    int exit_code = kTimedOut;                 ///< where it does
  };

  virtual ~Elastic() = default;

  /// Processes that this kolo-run begins with; before the first one runs.
  virtual void begin(const std::vector<Place>& places) = 0;
  /// What is to be done now. The caller does it, and prints the lines.
  virtual Orders orders() = 0;
  /// A process has ended; `end`: how. Returns whether the job goes on. `line`: why, for people.
  virtual bool note_end(const Process& process, Roster::End end, std::string& line) = 0;
  /// See Discovery::take_end().
  virtual void take_child(pid_t pid, int status) = 0;
  /// This kolo-run ends its processes and then itself.
  virtual void end(int exit_code) = 0;

  /// A rank has done its training, so that nothing more is to be started.
  virtual bool is_over() const = 0;
  /// The job goes on although no process of this kolo-run may be living.
  virtual bool waits() const = 0;
};

}  // namespace kolo::run
