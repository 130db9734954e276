// Membership of an elastic job without LibTorch: how a process goes from one world to the next.
// Membership is kept by kolo-run --min-np, in the file of file://, or in InitOptions::store.
// kolo::elastic::run() of <kolo/torch/elastic.h> does this for a trainer. The thread that calls
// collectives.
//
//   kolo::init();
//   kolo::newcomers();  // from now on the job goes on when a rank is lost
//   bool enters = kolo::membership().generation == 0;
//   for (bool is_done = false; !is_done; enters = true) {
//     if (enters) kolo::shutdown(), kolo::enter_next_world();
//     try {
//       share_state();      // all take the state of the rank that is furthest
//       is_done = train();  // false where rank 0 has seen newcomers() and has told all ranks
//     } catch (const kolo::Exception&) {
//       if (!kolo::loss()) throw;
//     }
//   }
//
// - Each world has a number, its generation. rank() and size() change from one to the next; ranks
//   that stay keep their order, and new processes follow.
// - Everything that belongs to a world ends with it: handles of operations, and process sets but
//   those of split_world().
// - A new process begins in a world of one, with generation 0, and enters the next world.
// - All ranks of a world leave it: those that see a loss, and those that are told of newcomers.
#pragma once

#include <kolo/collectives.h>
#include <kolo/error.h>
#include <kolo/export.h>

#include <functional>
#include <optional>

namespace kolo {

struct Membership {
  /// Whether new worlds are made of the processes that are there: under kolo-run --min-np, and over
  /// a file or a store after the first call of newcomers().
  bool is_elastic = false;
  /// Number of this world, from 1. 0: the others train already, and this process is still alone; or
  /// the job is not elastic.
  int generation = 0;
};

/// Throws kShutdown before init().
KOLO_API Membership membership();

/// Asks the launcher, the file or the store how many processes wait for the next world. With the
/// first call, on each process, the program says that it goes on when a rank is lost. 0 if the
/// launcher does not answer, or the job is not elastic. Waits for it for 5 s at most. The first
/// call throws kInvalidArgument where the file has the processes of another job, and kUnsupported
/// over a file or a store if InitOptions::process_sets names ranks.
KOLO_API int newcomers();

/// The failure that ended communication in this world, if another rank or its network is lost, so
/// that a next world may help.
KOLO_API std::optional<Error> loss();

/// After shutdown(): like init(), with the same options, but waits for the next world, with all
/// other living processes. Tries again itself when ranks are lost meanwhile. Throws
/// kInvalidArgument before shutdown(), kUnsupported where the job is not elastic, and kTimeout if
/// no world can be made within KOLO_INIT_TIMEOUT.
KOLO_API void enter_next_world();

/// Where a rank is in a world.
struct RankPlace {
  int rank = 0;
  int size = 1;        ///< number of ranks of the world
  int host = 0;        ///< number of its host, in the order of their lowest ranks
  int local_rank = 0;  ///< among the ranks of its host
};

/// Splits all ranks into process sets, in this world and in each that follows: ranks of the same
/// color share a set, as with MPI_Comm_split.
///
///   const kolo::ProcessSet mine = kolo::split_world([](const auto& place) { return place.host; });
///   kolo::allreduce_(tensor, {.process_set = mine});  // over the ranks of this host
///
/// - The handle names the set of this rank. It stays valid in the next worlds, where the set has
///   other ranks. Each rank is in one set, which has at least this rank.
/// - `color` is called for each rank, in each world. All ranks must compute the same: it depends on
///   nothing but its argument. It must not call kolo.
/// - Collective over the world. All ranks, also those that join later, make the same calls before
///   elastic::run() and newcomers(); afterwards it throws kInvalidArgument.
/// - These sets stay: remove_process_set() refuses them. They end with shutdown(), unless
///   enter_next_world() follows.
KOLO_API ProcessSet split_world(const std::function<int(const RankPlace& place)>& color);

}  // namespace kolo
