// Limited: runs another launcher beside kolo-run. Used by kolo-run's main thread, for srun and
// mpirun with --timeout and in elastic jobs; otherwise kolo-run becomes the launcher. mpirun's own
// limit has another exit status, and Slurm's limit is in whole minutes.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace kolo::run {

/// Runs the command in this process group. Signals that a process sends to kolo-run are passed on;
/// signals of a terminal reach both. At the limit, the command is asked to end, unless it was asked
/// before. It is killed only if it is asked to end again after the first request, whether by the
/// limit or by somebody.
/// The exit code is that of the command (128 + N for signal N), or 124 after the limit. Time that
/// kolo-run is stopped by SIGTSTP does not count. `limit` 0: none. Threads that were started before
/// must block signals. `is_over`: whether the command should end by itself now; if it does not, it
/// is asked to 10 s later.
Result<int> run_limited(const std::vector<std::string>& command,
                        const Environment::Variables& variables, std::chrono::seconds limit,
                        const std::function<bool()>& is_over);

}  // namespace kolo::run
