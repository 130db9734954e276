// Command: what is executed for a rank, here or through an agent on another host. Pure.
#pragma once

#include "runtime/base/environment.h"
#include "tools/run/placement.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace kolo::run {

struct Command {
  std::vector<std::string> arguments;  ///< of the program that runs on this host
  Environment::Variables variables;    ///< all of them
  std::string input = {};              ///< written to its standard input, which then stays open
  bool is_remote = false;
};

/// What all ranks of a job have in common.
struct JobDescription {
  std::vector<std::string> program;  ///< and its arguments
  int size = 1;
  std::string store;  ///< "node1:4711", where the launcher's store listens
  std::string secret;
  std::string master_addr;  ///< for other libraries
  int master_port = 0;
  std::vector<std::string> set;  ///< NAME=value, or NAME to forward, for all ranks
  std::vector<std::string> agent = {"ssh", "-T"};
  std::string directory;      ///< where the program starts, here and elsewhere
  int threads = 0;            ///< OMP_NUM_THREADS of local ranks unless it is set; 0: left alone
  std::string bind = "auto";  ///< auto, core, none
  std::string self;           ///< kolo-run's own path
};

/// Where the ranks meet, as all of a job know it.
std::string init_method_of(const JobDescription& job);

/// What tells a rank who it is.
Environment::Variables variables_of(const JobDescription& job, const Place& place,
                                    const Environment& environment);

/// What the shell on another host prints before it does anything else, for kolo-run alone.
inline constexpr std::string_view kLoggedIn = "kolo-run has logged in\n";

/// For the input of an agent: a signal for its program, as "USR1"; and, before that input ends, how
/// many seconds the program has between SIGTERM and SIGKILL.
std::string signal_line(std::string_view signal);
std::string grace_line(std::chrono::seconds grace);

/// Between asking a rank to end and making it end, unless the user says else; and what a rank that
/// has ended in order leaves running may still take.
inline constexpr std::chrono::seconds kGrace(5);

Command command_for(const JobDescription& job, const Place& place, const Environment& environment);

bool is_ssh(const std::vector<std::string>& agent);

/// Of a variable, as a shell takes it.
bool is_name(std::string_view text);

/// For a shell: 'it'\''s'.
std::string quoted(const std::string& text);

}  // namespace kolo::run
