// Limited: another launcher with a limit on its time. Used by kolo-run's main thread, for srun and
// mpirun with --timeout, in place of becoming them: mpirun's own limit has another exit status, and
// Slurm's is one of whole minutes.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <chrono>
#include <string>
#include <vector>

namespace kolo::run {

/// Runs the command in this process group, with signals that a process sends to kolo-run passed on;
/// those of a terminal reach both. At the limit it is asked to end, unless it was before. It is
/// killed only when it has been asked, by the limit or by somebody, and somebody asks again. The
/// exit code: that of the command (128 + N for signal N), or 124 after the limit. Time that
/// kolo-run is stopped by SIGTSTP does not count. To be called before any thread is started.
Result<int> run_limited(const std::vector<std::string>& command,
                        const Environment::Variables& variables, std::chrono::seconds limit);

}  // namespace kolo::run
