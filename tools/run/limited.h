// Limited: runs another launcher with a time limit. Used by kolo-run's main thread, for srun and
// mpirun with --timeout; without --timeout, kolo-run becomes the launcher. mpirun's own limit has
// another exit status, and Slurm's limit is in whole minutes.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <chrono>
#include <string>
#include <vector>

namespace kolo::run {

/// Runs the command in this process group. Signals that a process sends to kolo-run are passed on;
/// signals of a terminal reach both. At the limit, the command is asked to end, unless it was asked
/// before. It is killed only if it is asked to end again after the first request, whether by the
/// limit or by somebody.
/// The exit code is that of the command (128 + N for signal N), or 124 after the limit. Time that
/// kolo-run is stopped by SIGTSTP does not count. Call it before any thread is started.
Result<int> run_limited(const std::vector<std::string>& command,
                        const Environment::Variables& variables, std::chrono::seconds limit);

}  // namespace kolo::run
