// HostWindow: memory of every rank of a host that all its ranks have mapped, through which a
// schedule with mapped scratch reads and writes its peers. Opened once, at start; then each running
// operation borrows a slot of its rank's own window and tells the peers where it lies. Token holder
// only, but for open().
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/communicator.h"
#include "transport/transport.h"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace kolo {

class HostWindow {
 public:
  /// What every window begins with, zero at first: where its rank publishes (OneShot).
  static constexpr std::size_t kBoardBytes = 36 << 10;
  /// Operations that can hold a slot at a time.
  static constexpr int kSlots = 4;

  HostWindow();
  ~HostWindow();

  /// Collective over the world. Each rank offers `bytes` bytes for slots, or what of it the host
  /// has room for, and maps the others of its host. If that fails anywhere on a host, its ranks
  /// stay without a window, and its first rank logs why; an error is returned only if the bootstrap
  /// fails. 0 bytes on every rank: no window is wanted.
  Status open(Bootstrap& bootstrap, Transport& transport, const World& world, std::size_t bytes,
              const Log& log, Deadline deadline);
  /// Gives all memory back. Peers that still have it mapped keep it.
  void close();

  /// Bytes of a slot, alike on all ranks of the host; 0 without a window.
  std::size_t slot_bytes() const { return slot_bytes_; }
  /// Whether every rank of `communicator` is on this host and has its window mapped here.
  bool covers(const Communicator& communicator) const;
  /// The board of a rank whose window is mapped here.
  std::span<std::byte> board(int rank) const {
    return windows_[static_cast<std::size_t>(rank)].first(kBoardBytes);
  }
  /// By world rank; empty for ranks of other hosts.
  std::span<const std::span<std::byte>> windows() const { return windows_; }

  /// Where a free slot begins in the own window. Precondition: fewer than kSlots are taken.
  std::size_t take_slot();
  void give_back_slot(std::size_t offset);

 private:
  struct Offer;
  Status offer(Transport& transport, std::size_t bytes, Offer& mine);
  Status map(Transport& transport, const World& world, const std::vector<Offer>& offers);

  std::unique_ptr<MemoryRegion> own_;
  std::vector<std::unique_ptr<PeerMapping>> mappings_;
  std::vector<std::span<std::byte>> windows_;
  std::size_t slot_bytes_ = 0;
  std::vector<std::size_t> free_slots_;
};

}  // namespace kolo
