// LocalRanks: this program, started again for each rank on this host, and the store where they
// meet. Used by the thread that calls kolo::spawn().
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <optional>

namespace kolo {

/// In a process that start_local_ranks() has started: the number of its call there. Nothing else
/// where; then also if that process's parent is another by now.
std::optional<int> spawned_by_call(const Environment& environment);

/// In such a process, or what that has started: whether the process that waits for the ranks has
/// ended. Their job is over then.
bool is_orphan_of_spawn(const Environment& environment);

/// Starts the program `count` times and returns when all have ended: 0, or the status of the one
/// that failed first, 128 + N for signal N. `call` is the number that they find.
Result<int> run_local_ranks(int count, int call, const Environment& environment);

/// CUDA devices that this process may see, without CUDA: by CUDA_VISIBLE_DEVICES, else those of the
/// host.
int visible_devices(const Environment& environment);

}  // namespace kolo
