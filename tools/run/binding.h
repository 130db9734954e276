// Binding: which cores a rank runs on. Also the mode of kolo-run on another host, where it binds
// itself and becomes the rank's program, because only a process of that host knows its cores. Used
// by kolo-run's main thread.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <string>
#include <vector>

namespace kolo::run {

/// The share of `cores` for local rank `local_rank` of `local_size`, split as evenly as they
/// divide. Empty means not bound: with `bind` "none", and with "auto" if there are fewer cores than
/// ranks. With "core", too few cores give kInvalidArgument.
Result<std::vector<int>> cores_of_rank(const std::string& bind, int local_rank, int local_size,
                                       const std::vector<int>& cores);

/// OMP_NUM_THREADS for each rank of a host, unless it is set.
int threads_of_rank(int local_size, const std::vector<int>& cores);

/// The first word after kolo-run's name in this mode. Then follow the local rank, the number of
/// local ranks, the value of --bind, and the program with its arguments.
inline constexpr const char* kAsRank = "--as-rank";

/// Binds this process to its share of the cores and becomes the program; returns only on failure.
/// `words` are those after kAsRank. kInvalidArgument names what is wrong with them.
Error become_rank(const std::vector<std::string>& words, const Environment& environment);

/// Becomes another program; returns only on failure.
Error become(std::vector<std::string> command, const Environment::Variables& variables);

}  // namespace kolo::run
