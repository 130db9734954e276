// Process: one started command with its pipes. Used by kolo-run's main thread, which is the one
// that its children's lives hang on.
#pragma once

#include "runtime/base/unique_handle.h"
#include "tools/run/command.h"

#include <kolo/error.h>

#include <sys/types.h>

#include <string>
#include <vector>

namespace kolo::run {

struct Process {
  Place place = {};
  pid_t pid = -1;  ///< also its process group
  UniqueDescriptor input = {};
  UniqueDescriptor out = {};  ///< its standard output and error, if they are captured
  UniqueDescriptor error = {};
  bool is_remote = false;  ///< it is an agent
  bool ended = false;
  int status = 0;  ///< as waitpid() says it
};

struct StartOptions {
  bool captures_output = false;
  std::vector<int> processors = {};  ///< hardware threads to run on; empty: as kolo-run
};

/// Lets kolo-run have as many open files as it may; the ranks get the limit that it had.
void raise_open_files();

/// kInvalidArgument if the program cannot be executed, with the reason. The child is the leader of
/// a process group of its own and is killed when kolo-run dies.
Result<Process> start_process(const Place& place, const Command& command,
                              const StartOptions& options);

/// To the process and what it has started; ended ones are left alone.
void send_signal(const Process& process, int signal);

/// "exit status 3", "signal 9 (Killed)".
std::string describe_status(int status);
/// As a shell reports it: 128 + the signal.
int exit_code_of(int status);

}  // namespace kolo::run
