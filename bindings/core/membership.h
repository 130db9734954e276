// Membership: this process's way from one world of an elastic job to the next. Private to bindings.
// The thread that trains.
#pragma once

#include <kolo/error.h>
#include <kolo/export.h>

#include <optional>
#include <vector>

namespace kolo {

struct Membership {
  /// Whether the launcher makes new worlds of the processes that are there: kolo-run --min-np.
  bool is_elastic = false;
  /// Number of this world, from 1. 0: the others train already, and this process is still alone.
  int generation = 0;
};

/// Throws kShutdown before init().
KOLO_API Membership membership();

/// For each rank: the lowest rank of its host. Throws kShutdown before init().
KOLO_API std::vector<int> hosts_of_ranks();

/// Asks the launcher how many processes wait for the next world. With the first call the program
/// tells the launcher that it goes on when a rank is lost. 0 if the launcher does not answer.
KOLO_API int newcomers();

/// The failure that ended communication in this world, if another rank or its network is lost, so
/// that a next world may help.
KOLO_API std::optional<Error> loss();

/// After shutdown(): like init(), but waits for the next world, with all other living processes.
/// Tries again itself when ranks are lost meanwhile.
KOLO_API void enter_next_world();

}  // namespace kolo
