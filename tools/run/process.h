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
  pid_t pid = -1;               ///< also its process group
  UniqueDescriptor input = {};  ///< of an agent; does not block
  std::string unsent = {};      ///< what it has still to read there
  UniqueDescriptor out = {};    ///< its standard output and error, if they are captured
  UniqueDescriptor error = {};
  bool is_remote = false;  ///< it is an agent
  bool ended = false;
  bool is_gone = false;  ///< so is all that it has started in its group
  int status = 0;        ///< as waitpid() says it
};

struct StartOptions {
  bool captures_output = false;
  std::vector<int> processors = {};  ///< hardware threads to run on; empty: as kolo-run
};

/// Lets kolo-run have as many open files as it may; the ranks get the limit that it had.
void raise_open_files();

/// kInvalidArgument if the program cannot be executed, with the reason. The child is the leader of
/// a process group of its own, an agent of a session, without a terminal that it could ask: it
/// would be stopped for it. It is killed when kolo-run dies.
Result<Process> start_process(const Place& place, const Command& command,
                              const StartOptions& options);

/// To the process and what it has started.
void send_signal(const Process& process, int signal);

/// Sends what the process takes of its input without waiting.
void feed(Process& process);

/// "exit status 3", "signal 9 (Killed)".
std::string describe_status(int status);
/// As a shell reports it: 128 + the signal.
int exit_code_of(int status);

}  // namespace kolo::run
