// Job: starts the ranks, passes on what they write and what signals come, and ends all when one
// fails. Used by kolo-run's main thread.
#pragma once

#include "tools/run/output.h"
#include "tools/run/process.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace kolo::run {

struct JobOptions {
  bool tags_output = false;
  std::string output_directory = {};  ///< rank.N.out and rank.N.err; empty: none
  std::optional<std::chrono::seconds> timeout = std::nullopt;
};

/// To be called before any thread is started, so that the signals reach the job alone.
void block_signals();

class Job {
 public:
  Job(JobDescription description, JobOptions options)
      : description_(std::move(description)), options_(std::move(options)) {}

  /// The exit code: that of the rank that failed first, 128 + N for signal N, 124 after the
  /// timeout. kInvalidArgument if a rank could not be started; none is left then.
  Result<int> run(const std::vector<Place>& places, const Environment& environment);

 private:
  struct Rank {
    Process process;
    std::optional<Output> out = std::nullopt;
    std::optional<Output> error = std::nullopt;
  };
  using Clock = std::chrono::steady_clock;

  Status start(const Place& place, const Environment& environment);
  void supervise();
  void wait_for_events(int signals);
  void take_signals(int signals);
  void reap();
  void take_output(UniqueDescriptor& from, std::optional<Output>& to);
  void end_all(int signal, int exit_code);
  void kill_when_due();
  bool is_done() const;

  const JobDescription description_;
  const JobOptions options_;
  std::vector<Rank> ranks_;
  std::optional<int> exit_code_;                   ///< of what ended the job
  std::optional<Clock::time_point> kill_at_ = {};  ///< SIGKILL for what is left
  std::optional<Clock::time_point> timeout_at_ = {};
};

}  // namespace kolo::run
