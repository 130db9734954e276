// The chooser: from what a collective needs to the algorithm that does it, and the cache of the
// Schedules that came of it. An all-reduce's algorithm was chosen by its cost before (algorithm.h).
// Called when an operation starts, by the progress token's holder.
#pragma once

#include "runtime/collectives/algorithm.h"
#include "runtime/collectives/allreduce_ring.h"
#include "runtime/collectives/host_layout.h"
#include "runtime/collectives/schedule.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

namespace kolo {

enum class Collective : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kAllgather,      ///< all ranks' inputs, end to end in order of rank, to all
  kAlltoall,       ///< a part of each rank's input to each rank
  kReduceScatter,  ///< the sum of all inputs, cut into a part for each rank
  kGather,         ///< all ranks' inputs, end to end in order of rank, to the root
  kScatter,        ///< a part of the root's input to each rank
  kBarrier,        ///< nobody goes on before all have come; no memory
  kPointToPoint,   ///< the root's input to `peer`; all others have nothing to do
  kAdasum,         ///< an allreduce of one tensor by ReduceOp::kAdasum
};

/// Blocks that kMapped has under way at once, each in a lane of the scratch. An all-reduce has
/// fewer: while a rank sums one block it packs the next, and what more lanes hold ahead only leaves
/// the caches before it is read.
inline constexpr int kMappedLanes = 4;
inline constexpr int kSummedLanes = 2;

/// All that a schedule depends on. Every rank makes the same request but for its own `rank`.
struct ScheduleRequest {
  Collective collective = Collective::kAllreduce;
  int rank = 0;
  int size = 1;
  int root = 0;             ///< of broadcast, gather and scatter; who sends from point to point
  int peer = 0;             ///< who receives from point to point
  std::uint64_t count = 0;  ///< elements, where all ranks have equally many: all without `counts`
  std::uint64_t chunk_elements = 64 << 10;
  int blocks_in_flight = 4;                   ///< of allreduce and reduce-scatter; else: chunks
  Placement placement = Placement::kInPlace;  ///< of an allreduce
  /// Of an allreduce. Of a broadcast, allgather and reduce-scatter: kMapped, kHierarchical with
  /// windows, or anything else, which is by messages; of an alltoall: likewise, but not
  /// kHierarchical.
  Algorithm algorithm = Algorithm::kRing;
  /// Of kMapped: scratch, `mapped_lanes` elements or more. Of kHierarchical: the same, enough for
  /// the layout, or 0 for messages inside hosts.
  std::uint64_t mapped_elements = 0;
  /// Of kMapped, and of kHierarchical but for an allreduce: into how many lanes that is cut.
  int mapped_lanes = kMappedLanes;
  /// Of kMapped: as MappedOptions::direct. The ranks may differ in it.
  bool direct = false;
  /// Of an allreduce by kMapped and kHierarchical: as MappedOptions::owners.
  std::vector<int> owners = {};
  /// Of an allreduce by kHierarchical: as HierarchicalOptions::staged. Of all else: its messages
  /// pass stage_messages(), with `blocks_in_flight` slots. The ranks may differ in it.
  bool staged = false;
  /// Of kHierarchical: `size` ranks. Of other allreduces, of broadcasts, allgathers and
  /// reduce-scatters by messages: the same, or none where neighbours are those by number.
  HostLayout layout = {};
  /// Of an allgather and a gather: this rank's input lies in its place in the output already, and
  /// kInput need not be bound. Of a scatter: the root's part stays in the input. The ranks may
  /// differ in it.
  bool in_place = false;
  /// Elements. Of allgather, reduce-scatter, gather and scatter: of each rank's part, `size` of
  /// them. Of alltoall: [i × size + j] is what rank i sends to rank j. Else empty.
  std::vector<std::uint64_t> counts = {};
  /// Its messages pass meet_first(); not of kMapped, where windows bound what is under way.
  bool meets_first = false;

  friend bool operator==(const ScheduleRequest&, const ScheduleRequest&) = default;
};

/// The schedule of the chosen algorithm. Pure. Requires `counts` as long as the collective needs.
Schedule make_schedule(const ScheduleRequest& request);

/// Schedules made before, the least recently used dropped first. A training step asks for the same
/// few again and again, and making one costs more than starting it.
class ScheduleCache {
 public:
  struct Limits {
    std::size_t entries = 512;
    std::size_t steps = 1 << 20;  ///< of all entries together, and their counts: about 100 MB
  };

  ScheduleCache() : ScheduleCache(Limits()) {}
  explicit ScheduleCache(Limits limits) : limits_(limits) {}

  /// Never null. What was handed out lives on when its entry is dropped.
  std::shared_ptr<const Schedule> get(const ScheduleRequest& request);

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    ScheduleRequest request;
    std::shared_ptr<const Schedule> schedule;
  };
  struct Hash {
    std::size_t operator()(const ScheduleRequest& request) const noexcept;
  };

  Limits limits_;
  std::list<Entry> entries_;  ///< most recently used first
  std::unordered_map<ScheduleRequest, std::list<Entry>::iterator, Hash> by_request_;
  std::size_t steps_ = 0;
};

}  // namespace kolo
