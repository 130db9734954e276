// The chooser: picks the algorithm of a collective, makes its schedule, and caches schedules. The
// algorithm of an all-reduce is already chosen by its price (algorithm.h). Called by the progress
// token holder when an operation starts.
#pragma once

#include "runtime/base/operation_kind.h"
#include "runtime/collectives/algorithm.h"
#include "runtime/collectives/allreduce_ring.h"
#include "runtime/collectives/schedule.h"
#include "runtime/topology/host_layout.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

namespace kolo {

/// Blocks that kMapped has in flight, each in a pipeline slot of the scratch. An all-reduce has
/// fewer: while a rank sums one block, it packs the next. More packed blocks would only leave the
/// caches before they are read.
inline constexpr int kPipelineSlots = 4;
inline constexpr int kAllreducePipelineSlots = 2;

/// Everything that a schedule depends on. All ranks make the same request, except for `rank`.
struct ScheduleRequest {
  /// kSend: from the root to `peer`; other ranks do nothing. Never kReceive, which has the same
  /// schedule.
  OperationKind kind = OperationKind::kAllreduce;
  int rank = 0;
  int size = 1;
  int root = 0;             ///< root of broadcast, gather and scatter; sender of kSend
  int peer = 0;             ///< receiver of kSend
  std::uint64_t count = 0;  ///< elements of every rank; for all collectives without `counts`
  std::uint64_t chunk_elements = 64 << 10;
  int blocks_in_flight = 4;  ///< blocks of allreduce and reduce-scatter; else chunks
  Placement placement = Placement::kInPlace;  ///< for allreduce
  /// For allreduce: the algorithm. For broadcast, allgather and reduce-scatter: kMapped,
  /// kHierarchical with windows, or any other value for messages; of these, kRecursiveDoubling
  /// makes an allgather or reduce-scatter take few rounds. For alltoall, gather and scatter:
  /// kMapped, or any other value for messages.
  Algorithm algorithm = Algorithm::kRing;
  /// Elements of mapped scratch. For kMapped: at least `pipeline_slots`. For kHierarchical: enough
  /// for the layout, or 0 for messages inside hosts.
  std::uint64_t mapped_elements = 0;
  /// Number of pipeline slots that the mapped scratch is cut into. For kMapped and kHierarchical,
  /// except for an allreduce by kHierarchical.
  int pipeline_slots = kPipelineSlots;
  /// For kMapped: see MappedOptions::direct. Ranks may differ in it.
  bool direct = false;
  /// For an allreduce by kMapped or kHierarchical: see MappedOptions::owners.
  std::vector<int> owners = {};
  /// For an allreduce by kHierarchical: see HierarchicalOptions::staged. For every other schedule:
  /// its messages pass stage_messages() with `blocks_in_flight` slots. Ranks may differ in it.
  bool staged = false;
  /// For an allreduce, broadcast, allgather or reduce-scatter by kMapped: the NUMA nodes, in the
  /// place of hosts, if it goes by them; else ignored, or of one host. For kHierarchical: `size`
  /// ranks. For messages of other allreduces, broadcasts, allgathers and reduce-scatters: also
  /// `size` ranks, or empty if neighbours are those by number.
  HostLayout layout = {};
  /// For messages of allgather and gather: this rank's input already lies at its offset in the
  /// output, and kInput need not be bound. For those of scatter: the root's part stays in the
  /// input. Ranks may differ in it.
  bool in_place = false;
  /// Elements. For allgather, reduce-scatter, gather and scatter: each rank's part, `size` numbers.
  /// For alltoall: [i × size + j] is what rank i sends to rank j, or one number if all are equal.
  /// Else empty.
  std::vector<std::uint64_t> counts = {};
  /// The messages pass meet_first(). Ignored for kMapped, where windows bound the data in flight.
  bool meets_first = false;

  friend bool operator==(const ScheduleRequest&, const ScheduleRequest&) = default;
};

/// The sum of all parts in `counts`.
std::uint64_t elements_of_parts(const ScheduleRequest& request);

/// The schedule of the chosen algorithm. Pure. `counts` must have the length that the collective
/// needs.
Schedule make_schedule(const ScheduleRequest& request);

/// Cache of schedules; drops the least recently used first. A training step repeats a few requests,
/// and making a schedule costs more than starting it.
class ScheduleCache {
 public:
  struct Limits {
    std::size_t entries = 512;
    std::size_t steps = 1 << 20;  ///< steps of all entries together, and their counts: about 100 MB
  };

  ScheduleCache() : ScheduleCache(Limits()) {}
  explicit ScheduleCache(Limits limits) : limits_(limits) {}

  /// Never null. A returned schedule stays valid after its entry is dropped.
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
