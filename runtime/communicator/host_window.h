// HostWindow: memory of every rank of a host that all its ranks have mapped, through which a
// schedule with mapped scratch reads and writes its peers. Opened once, at start. It begins with a
// board (OneShot), then come slots, one of which each running operation borrows as its scratch, and
// then the arena, for users' memory. Operations tell the peers where in it their memory lies. Token
// holder only, but for open() and arena().
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/shared_arena.h"
#include "transport/transport.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kolo {

class HostWindow {
 public:
  /// What every window begins with, zero at first: where its rank publishes (OneShot).
  static constexpr std::size_t kBoardBytes = 200 << 10;
  /// Operations that can hold a slot at a time.
  static constexpr int kSlots = 4;

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

  /// Bytes of a slot, alike on all ranks of the host; 0 without a window.
  std::size_t slot_bytes() const { return slot_bytes_; }
  /// The least slot of any host that has several ranks, alike on all ranks of the world; 0 if one
  /// of those hosts has no window, or if no host has several ranks.
  std::size_t slot_bytes_everywhere() const { return slot_bytes_everywhere_; }
  /// Whether every rank of `communicator` is on this host and has its window mapped here.
  bool covers(const Communicator& communicator) const;
  /// The board of a rank whose window is mapped here.
  std::span<std::byte> board(int rank) const {
    return windows_[static_cast<std::size_t>(rank)].first(kBoardBytes);
  }
  /// By world rank; empty for ranks of other hosts.
  std::span<const std::span<std::byte>> windows() const { return windows_; }

  /// Users' part of the own window; null without one.
  const std::shared_ptr<SharedArena>& arena() const { return arena_; }

  /// Where a free slot begins in the own window. Precondition: fewer than kSlots are taken.
  std::size_t take_slot();
  void give_back_slot(std::size_t offset);

 private:
  struct Offer;
  enum class Kind { kReserved, kAllocated };
  Result<bool> open_as(Kind kind, Bootstrap& bootstrap, Transport& transport, const World& world,
                       Sizes sizes, const Log& log, Deadline deadline);
  Status offer(Kind kind, Transport& transport, Sizes sizes, Offer& mine);
  Status compare(Bootstrap& bootstrap, const World& world, Deadline deadline);
  Status map(Transport& transport, const World& world, const std::vector<Offer>& offers);

  std::shared_ptr<MemoryRegion> own_;
  std::shared_ptr<SharedArena> arena_;
  std::vector<std::unique_ptr<PeerMapping>> mappings_;
  std::vector<std::span<std::byte>> windows_;
  std::size_t slot_bytes_ = 0;
  std::size_t slot_bytes_everywhere_ = 0;
  std::vector<std::size_t> free_slots_;
};

}  // namespace kolo
