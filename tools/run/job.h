// Job: starts the ranks, passes on their output and the signals that come, and ends all ranks when
// one fails. Used by kolo-run's main thread.
#pragma once

#include "tools/run/elastic.h"
#include "tools/run/output.h"
#include "tools/run/process.h"

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo::run {

struct JobOptions {
  bool tags_output = false;
  std::string output_directory = {};  ///< for rank.N.out and rank.N.err; empty: none
  std::optional<std::chrono::seconds> timeout = std::nullopt;
  /// Time between asking ranks to end and SIGKILL. The default is longer after a signal than after
  /// a failure.
  std::optional<std::chrono::seconds> grace = std::nullopt;
  /// Time that ranks have after SIGKILL; the kernel may have much memory of a rank to take back.
  std::chrono::seconds time_to_die = std::chrono::seconds(60);
  Elastic* elastic = nullptr;  ///< what decides on the processes of an elastic job; null: none
  /// Called once, before the other ranks are ended: the rank that ended the job, and the exit code.
  std::function<void(int rank, int exit_code)> on_first_failure = {};
  /// Called for each rank of a job that is not elastic once it has ended with exit status 0 and all
  /// that it started in its process group has ended, too.
  std::function<void(int rank)> on_gone = {};
  /// Called once, when the job begins to end.
  std::function<void()> on_end = {};
};

class Job {
 public:
  Job(JobDescription description, JobOptions options)
      : description_(std::move(description)), options_(std::move(options)) {}

  /// Returns the exit code: that of the rank that was first to end with an error, 128 + N for
  /// signal N, 124 after the timeout and where an elastic job can have no world any more.
  /// kInvalidArgument if a rank could not be started; no rank is left running then.
  Result<int> run(const std::vector<Place>& places, const Environment& environment);
  /// After run(): the rank that ended the job, also one that could not be started.
  std::optional<int> first_failed() const { return first_failed_; }
  /// After run(): how it ended, as "signal 9 (Killed)"; empty if it could not be started.
  const std::string& first_end() const { return first_end_; }
  /// After run(): where processes were started.
  std::vector<Place> places() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Time = std::optional<Clock::time_point>;

  struct Rank {
    Process process;
    std::optional<Output> out = std::nullopt;
    std::optional<Output> error = std::nullopt;
    bool is_logging_in = false;
    bool has_logged_in = false;
    bool is_dismissed = false;  ///< its end is no failure
    Time kill_at = {};          ///< SIGKILL for a rank that was asked to end
    std::string banner = {};    ///< what an agent wrote before the login was done
    Time linger_until = {};     ///< for processes that the rank left running, until SIGTERM
    Time kill_rest_at = {};     ///< SIGKILL for them
  };

  Status start(const Place& place, const Environment& environment);
  Status make_outputs(Rank& rank, bool is_remote);
  /// Starts as many of the waiting ranks as may log in at once.
  void start_waiting(const Environment& environment);
  bool may_log_in(const std::string& host) const;

  void supervise(const Environment& environment);
  void wait_for_events(int signals);
  int milliseconds_to_wait() const;
  /// Reads what the agent of a rank that has ended wrote before the login was done.
  void take_banner(Rank& rank);
  void take_output(Rank& rank, UniqueDescriptor& from, Output& to);
  void flush_outputs();
  void take_signals(int signals);
  void take_stop(int signal);
  void pass_on(int signal);
  void suspend(bool by_terminal);

  void reap();
  void take_end(Rank& rank, int status);
  Roster::End end_of(const Rank& rank) const;
  /// Starts and ends what an elastic job needs now.
  void follow_orders();
  Rank* find(int process);
  void name_first_failure();
  /// Records that rank `rank` ended the job.
  void take_first_failure(int rank, int exit_code);
  void ask_to_end(Rank& rank, int signal, std::chrono::seconds grace);
  void end_all(int signal, int exit_code, std::chrono::seconds grace);
  void keep_deadlines();
  void look_after_rest(Rank& rank);
  void look_after_strays();
  /// Processes of this host that ranks have started in sessions of their own.
  std::vector<pid_t> strays() const;
  void close_what_is_left_open();

  bool have_ended() const;
  bool are_gone() const;
  bool is_done() const;
  /// Writes a line of kolo-run's own after the output that ranks have written before.
  void tell(const std::string& line);

  const JobDescription description_;
  const JobOptions options_;
  std::vector<Place> waiting_ = {};  ///< not started yet, the next rank last
  std::deque<Rank> ranks_ = {};
  bool has_agents_ = false;
  std::vector<std::shared_ptr<Sink>> sinks_ = {};
  std::shared_ptr<Sink> out_ = {};  ///< kolo-run's standard output, if the ranks' output goes there
  std::shared_ptr<Sink> error_ = {};
  bool has_lost_output_ = false;

  Status started_ = {};                ///< an error if a rank could not be started
  std::optional<int> exit_code_ = {};  ///< set once the job is ending
  std::optional<int> first_failed_ = {};
  std::string first_end_ = {};
  std::vector<const Rank*> failed_ = {};
  bool is_stopped_ = false;  ///< by a signal or the timeout
  Time first_signal_at_ = {};
  Time name_at_ = {};  ///< when to print which rank was first to end with an error
  Time kill_at_ = {};  ///< SIGKILL for all that is left
  Time timeout_at_ = {};
  Time close_at_ = {};       ///< closes outputs that somebody holds open after all ranks are gone
  bool has_strays_ = false;  ///< set after the ranks and their groups are gone
  bool has_ended_strays_ = false;
  Time strays_due_at_ = {};  ///< next signal to strays
  std::size_t stray_signals_ = 0;
  Time give_up_at_ = {};  ///< gives up on ranks that not even SIGKILL has ended
  Time leave_at_ = {};    ///< leaves even if nobody reads the rest of the output
};

}  // namespace kolo::run
