// Binding: which cores a rank of a host runs on, and the manner of kolo-run in which it becomes a
// rank's program on another host, where only a process of that host knows its cores. Used by
// kolo-run's main thread.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <string>
#include <vector>

namespace kolo::run {

/// The share of local rank `local_rank` of `local_size` in `cores`, split as evenly as they divide;
/// empty, with `bind` "none", or with "auto" where there are fewer cores than ranks: not bound.
/// kInvalidArgument for "core" there.
Result<std::vector<int>> cores_of_rank(const std::string& bind, int local_rank, int local_size,
                                       const std::vector<int>& cores);

/// OMP_NUM_THREADS of each rank of a host, unless it is set.
int threads_of_rank(int local_size, const std::vector<int>& cores);

/// The first word after kolo-run's name in that manner: then follow the local rank, their number,
/// what --bind says, and the program with its arguments.
inline constexpr const char* kAsRank = "--as-rank";

/// Binds this process to its share and becomes the program; returns only if it cannot. Words are
/// those after kAsRank. kInvalidArgument names what is wrong with them.
Error become_rank(const std::vector<std::string>& words, const Environment& environment);

/// Becomes another program; returns only if it cannot.
Error become(std::vector<std::string> command, const Environment::Variables& variables);

}  // namespace kolo::run
