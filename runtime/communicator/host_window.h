// HostWindow: memory of every rank of a host that all its ranks have mapped, through which a
// schedule with mapped scratch reads and writes its peers. Opened once, at start. It has places:
// the world's, which is 0, and some for process sets, one each. A place has a board (OneShot) and
// slots, one of which each running operation borrows as its scratch. Behind them lies the arena,
// for users' memory. Operations tell the peers where in the window their memory lies. Token holder
// only, but for open() and arena().
//
// Places are apart so that sets cannot lock each other out: were slots common, ranks 0 and 1 could
// hold all of theirs for operations of the set {0, 1, 2} that wait for rank 2, while rank 2 holds
// all of its own for {1, 2}, in which it waits for rank 1. Within a set all ranks start the same
// operations of each door in the same order, no more at once than there are slots, and the ordered
// door's leave one to the named door's (Cycle).
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/shared_arena.h"
#include "runtime/communicator/users_memory.h"
#include "transport/transport.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kolo {

class HostWindow {
 public:
  /// Of a process set without a place.
  static constexpr int kNoPlace = -1;
  /// What every window begins with, a board for each place, zero at first (OneShot).
  static constexpr std::size_t kBoardBytes = 524 << 10;
  /// Operations of a place that can hold a slot at a time.
  static constexpr int kSlots = 4;
  /// Place 0 is the world's. A rank is in so many process sets at a time, and more, by messages.
  static constexpr int kPlaces = 5;

  HostWindow();
  ~HostWindow();

  struct Sizes {
    std::size_t slots = 0;  ///< bytes of all slots together
    std::size_t arena = 0;  ///< bytes of address space
  };

  /// Collective over the world. Each rank offers memory of these sizes, or what of it the host has
  /// room for, and maps the others of its host. Where memory cannot be reserved, there is no arena.
  /// If it cannot be shared at all on a host, its ranks stay without a window, and its first rank
  /// logs why; an error is returned only if the bootstrap fails. No slots on every rank: no window
  /// is wanted.
  Status open(Bootstrap& bootstrap, Transport& transport, const World& world, Sizes sizes,
              const Log& log, Deadline deadline);
  /// Gives all memory back, but for the arena's that is in use. Peers that still have it mapped
  /// keep it.
  void close();

  /// Bytes of a place's slot, alike on all ranks of the host; 0 without a window.
  std::size_t slot_bytes(int place = 0) const;
  /// The least slot of a place on any host that has several ranks, alike on all ranks of the world;
  /// 0 if one of those hosts has none, or if no host has several ranks.
  std::size_t slot_bytes_everywhere(int place) const {
    return place == 0 ? slot_bytes_everywhere_ : set_slot_bytes_everywhere_;
  }
  /// Whether every rank of `communicator`, whose place this is, is on this host and has its window
  /// mapped here. Of kNoPlace it is none.
  bool covers(const Communicator& communicator, int place) const;
  /// The board of a rank of the world whose window is mapped here.
  std::span<std::byte> board(int rank, int place) const {
    return windows_[static_cast<std::size_t>(rank)].subspan(
        static_cast<std::size_t>(place) * kBoardBytes, kBoardBytes);
  }
  /// By world rank; empty for ranks of other hosts.
  std::span<const std::span<std::byte>> windows() const { return windows_; }

  /// Users' part of the own window; null without one.
  const std::shared_ptr<SharedArena>& arena() const { return arena_; }
  /// When the others may touch it. Open where there are windows.
  UsersMemory& users_memory() { return users_memory_; }

  /// A process set's slots, which have only addresses at first, get memory and keep it.
  /// kOutOfMemory if there is none. Precondition: slot_bytes(place) > 0.
  Status commit_slots(int place);
  /// Where a free slot begins in the own window. Preconditions: its place has memory, and fewer
  /// than kSlots are taken.
  std::size_t take_slot(int place);
  void give_back_slot(int place, std::size_t offset);

 private:
  struct Offer;
  enum class Kind { kReserved, kAllocated };
  Result<bool> open_as(Kind kind, Bootstrap& bootstrap, Transport& transport, const World& world,
                       Sizes sizes, const Log& log, Deadline deadline);
  Status offer(Kind kind, Transport& transport, const World& world, Sizes sizes, Offer& mine);
  Status compare(Bootstrap& bootstrap, const World& world, Deadline deadline);
  Status map(Kind kind, Transport& transport, const World& world, const std::vector<Offer>& offers);

  std::shared_ptr<MemoryRegion> own_;
  std::shared_ptr<SharedArena> arena_;
  UsersMemory users_memory_;
  std::vector<std::unique_ptr<PeerMapping>> mappings_;
  std::vector<std::span<std::byte>> windows_;
  std::size_t slot_bytes_ = 0;
  std::size_t slot_bytes_everywhere_ = 0;
  std::size_t set_slot_bytes_everywhere_ = 0;
  std::array<std::vector<std::size_t>, kPlaces> free_slots_ = {};
  std::size_t sets_begin_ = 0;                 ///< of the process sets' slots in the own window
  std::array<bool, kPlaces> has_memory_ = {};  ///< of the process sets' places
  bool has_sets_ = false;  ///< memory was reserved, so there are places for them
};

}  // namespace kolo
