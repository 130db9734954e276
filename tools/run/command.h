// Command: what is executed for a rank, on this host or through an agent on another host. Pure.
#pragma once

#include "runtime/base/environment.h"
#include "tools/run/placement.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::run {

struct Command {
  std::vector<std::string> arguments;  ///< arguments of the program that runs on this host
  Environment::Variables variables;    ///< the whole environment
  std::string input = {};  ///< written to the program's standard input, which then stays open
  bool is_remote = false;
};

/// What all ranks of a job have in common.
struct JobDescription {
  std::vector<std::string> program;  ///< and its arguments
  int size = 1;
  std::string store;  ///< "node1:4711", where the launcher's store listens
  std::string secret;
  std::string master_addr;  ///< for other libraries than kolo
  int master_port = 0;
  std::vector<std::string> set;  ///< NAME=value, or NAME to forward, for all ranks
  std::vector<std::string> agent = {"ssh", "-T"};
  std::string directory;      ///< where the program starts, here and elsewhere
  int threads = 0;            ///< OMP_NUM_THREADS of local ranks unless it is set; 0: not set
  std::string bind = "auto";  ///< auto, core, none
  std::string self;           ///< kolo-run's own path
  bool is_elastic = false;
};

/// Where the ranks meet: KOLO_INIT_METHOD, equal on all ranks of the job.
std::string init_method_of(const JobDescription& job);

/// The variables that tell a rank who it is.
Environment::Variables variables_of(const JobDescription& job, const Place& place,
                                    const Environment& environment);

/// What the shell on another host prints first, for kolo-run alone.
inline constexpr std::string_view kLoggedIn = "kolo-run has logged in\n";

/// Lines for an agent's input: a signal for its program, such as "USR1"; and, before the input
/// ends, the seconds that the program has between SIGTERM and SIGKILL.
std::string signal_line(std::string_view signal);
std::string grace_line(std::chrono::seconds grace);

/// Default time between SIGTERM and SIGKILL. Also the time that processes may take which a rank
/// leaves running after an orderly end.
inline constexpr std::chrono::seconds kGrace(5);

/// A shell on another host that reads `script` from its input.
Command command_on(const JobDescription& job, const std::string& host, std::string script);

Command command_for(const JobDescription& job, const Place& place, const Environment& environment);

bool is_ssh(const std::vector<std::string>& agent);

/// Whether `text` is a shell variable's name.
bool is_name(std::string_view text);

/// Quoted for a shell: 'it'\''s'.
std::string quoted(const std::string& text);

}  // namespace kolo::run
