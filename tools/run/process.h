// Process: one started command with its pipes. Used by kolo-run's main thread: the kernel kills the
// children when that thread ends.
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
  pid_t pid = -1;               ///< also its process group
  UniqueDescriptor input = {};  ///< an agent's input; non-blocking
  std::string unsent = {};      ///< what is still to be written to `input`
  UniqueDescriptor out = {};    ///< its standard output and error, if they are captured
  UniqueDescriptor error = {};
  bool is_remote = false;  ///< it is an agent
  bool ended = false;
  bool is_gone = false;  ///< it and all that it has started in its group
  int status = 0;        ///< as waitpid() returns it
};

struct StartOptions {
  bool captures_output = false;
  int out = -1;  ///< files for its standard output and error; −1: kolo-run's, if not captured
  int error = -1;
  std::vector<int> processors = {};  ///< hardware threads to run on; empty: those of kolo-run
};

/// Raises kolo-run's limit of open files to its maximum; the ranks get the old limit.
void raise_open_files();

/// kInvalidArgument with the reason if the program cannot be executed. The child leads a process
/// group of its own. An agent leads a session of its own without a terminal, because a question on
/// the terminal would stop it. The child is killed when kolo-run dies.
Result<Process> start_process(const Place& place, const Command& command,
                              const StartOptions& options);

/// Sends `signal` to the process and to what it has started.
void send_signal(const Process& process, int signal);

/// Writes as much to the process's input as it takes without waiting.
void feed(Process& process);

/// "exit status 3", "signal 9 (Killed)".
std::string describe_status(int status);
/// As a shell reports it: 128 + the signal's number if a signal ended it.
int exit_code_of(int status);

}  // namespace kolo::run
