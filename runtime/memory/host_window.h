// HostWindow: a window of memory for every rank of a host, which all ranks of the host have mapped.
// Schedules with mapped scratch read and write their peers through it. Opened once, at start.
// Partition 0 belongs to the world; further partitions belong to one process set each. A partition
// has a control segment (Exchange) and slots; each running operation borrows one slot as its
// scratch. Behind them lies the arena, for users' memory. Operations tell peers the buffer offsets
// of their memory in the window. Progress token holder only, except open() and arena().
//
// Each set has its own partition so that sets cannot deadlock. With common slots, ranks 0 and 1
// could hold all of theirs for operations of the set {0, 1, 2}, which wait for rank 2, while rank 2
// holds all of its own for {1, 2}, where it waits for rank 1. Within a set, all ranks start the
// operations of each mode in the same order, and at most kSlots at once. In-order submissions leave
// one slot to negotiated submissions (Cycle).
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/communicator.h"
#include "runtime/memory/shared_arena.h"
#include "runtime/memory/shared_region.h"
#include "runtime/memory/users_memory.h"
#include "transport/transport.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kolo {

class HostWindow {
 public:
  /// The partition of a process set that has none.
  static constexpr int kNoPartition = -1;
  /// Bytes of a control segment. Every window begins with one for each partition, zero at first
  /// (Exchange).
  static constexpr std::size_t kControlSegmentBytes = 632 << 10;
  /// Slots of a partition: operations that can hold one at the same time.
  static constexpr int kSlots = 4;
  /// Partition 0 belongs to the world. A rank can use shared memory in at most four further process
  /// sets; any others fall back to messages.
  static constexpr int kPartitions = 5;
  /// Slots of all process sets.
  static constexpr int kSetSlots = (kPartitions - 1) * kSlots;

  explicit HostWindow(ReservedMemory reserved = {});
  ~HostWindow();

  struct Sizes {
    std::size_t slots = 0;  ///< bytes of all slots together
    std::size_t arena = 0;  ///< bytes of address space
  };

  /// Collective over the world. Each rank offers memory of these sizes, or less if the host is
  /// short of it, and maps the windows of the other ranks of its host. If memory cannot be
  /// reserved, there is no arena. If a host cannot share memory at all, its ranks have no window,
  /// and its first rank logs why. `sizes.slots` = 0 on every rank: no window. Errors: only those of
  /// the bootstrap.
  Status open(Bootstrap& bootstrap, Transport& transport, const World& world, Sizes sizes,
              const Log& log, Deadline deadline);
  /// Frees all memory, except arena memory in use. Peers that still have it mapped keep it.
  void close();

  /// Bytes of a slot of the partition, the same on all ranks of the host; 0 without a window.
  std::size_t slot_bytes(int partition = 0) const;
  /// Bytes of the smallest slot of the partition on any host with several ranks, the same on all
  /// ranks of the world. 0 if one of these hosts has no slots, or if no host has several ranks.
  std::size_t slot_bytes_everywhere(int partition) const {
    return partition == 0 ? slot_bytes_everywhere_ : set_slot_bytes_everywhere_;
  }
  /// Whether all ranks of `communicator` are on this host and their windows are mapped here.
  /// `partition` is the communicator's; false for kNoPartition.
  bool covers(const Communicator& communicator, int partition) const;
  /// The control segment of a world rank whose window is mapped here.
  std::span<std::byte> control_segment(int rank, int partition) const {
    return windows_[static_cast<std::size_t>(rank)].subspan(
        static_cast<std::size_t>(partition) * kControlSegmentBytes, kControlSegmentBytes);
  }
  /// By world rank; empty for ranks of other hosts.
  std::span<const std::span<std::byte>> windows() const { return windows_; }

  /// The part of this rank's window for users; null without a window or if memory was not reserved.
  const std::shared_ptr<SharedArena>& arena() const { return arena_; }
  /// Tells when ranks may access the memory of each other's users. Open if there are windows.
  UsersMemory& users_memory() { return users_memory_; }

  /// Gives memory to the slots of a process set, which have only addresses at first; they keep it.
  /// kOutOfMemory. Precondition: slot_bytes(partition) > 0.
  Status commit_slots(int partition);
  /// Offset of a free slot in this rank's window. Preconditions: the partition has memory, and
  /// fewer than kSlots are taken.
  std::size_t take_slot(int partition);
  void give_back_slot(int partition, std::size_t offset);

 private:
  struct Offer;
  enum class Kind { kReserved, kAllocated };
  Result<bool> open_as(Kind kind, Bootstrap& bootstrap, Transport& transport, const World& world,
                       Sizes sizes, const Log& log, Deadline deadline);
  /// Closes if a rank of this host could not map the others' memory, and logs why. True if there is
  /// such a rank on any host. `outcomes`: by rank, why it could not, or empty.
  bool close_if_unmapped(Kind kind, const World& world, const std::vector<std::string>& outcomes,
                         const Log& log);
  Status offer(Kind kind, Transport& transport, const World& world, Sizes sizes, Offer& mine);
  Status compare(Bootstrap& bootstrap, const World& world, Deadline deadline);
  Status map(Kind kind, Transport& transport, const World& world, const std::vector<Offer>& offers);

  const ReservedMemory reserved_;
  std::shared_ptr<MemoryRegion> own_;
  std::shared_ptr<SharedArena> arena_;
  UsersMemory users_memory_;
  std::vector<std::unique_ptr<PeerMapping>> mappings_;
  std::vector<std::span<std::byte>> windows_;
  std::size_t slot_bytes_ = 0;
  std::size_t slot_bytes_everywhere_ = 0;
  std::size_t set_slot_bytes_everywhere_ = 0;
  std::array<std::vector<std::size_t>, kPartitions> free_slots_ = {};
  /// Offset of the process sets' slots in the window.
  std::size_t sets_begin_ = 0;
  std::array<bool, kPartitions> has_memory_ = {};  ///< by partition, for process sets
  bool has_sets_ = false;  ///< memory was reserved, so process sets have partitions
};

}  // namespace kolo
