// LocalRanks: starts this program again for each rank on this host, and serves the store where they
// meet. Used by the thread that calls kolo::spawn().
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// In a process that run_local_ranks() has started: the number of that call. Nothing in any other
/// process, nor after the process has got another parent.
std::optional<int> spawned_by_call(const Environment& environment);

/// In a process that run_local_ranks() has started, or in its descendants: whether the process that
/// waits for the ranks has ended. Their job is then over.
bool is_orphan_of_spawn(const Environment& environment);

/// Starts the program `count` times and returns when all have ended: 0, or the status of the first
/// that failed (128 + N for signal N). The ranks get `call` from spawned_by_call().
Result<int> run_local_ranks(int count, int call, const Environment& environment);

/// The arguments or variables of a program, as exec() takes them.
std::vector<char*> pointers_to(std::vector<std::string>& strings);

/// Number of CUDA devices that this process may see, without calling CUDA: from
/// CUDA_VISIBLE_DEVICES, else all of the host.
int visible_devices(const Environment& environment);

}  // namespace kolo
