// DeviceWindow: this rank's accelerator, and a part of its memory that all ranks of the host have
// mapped. Schedules with mapped scratch read and write peers' devices through it. Opened once, at
// start. It has the partitions of HostWindow: the world and some process sets each have slots, and
// each running operation borrows one slot as its scratch. Behind the slots lies the arena, for
// users' memory. Progress token holder only, except open(), accelerator() and arena().
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/communicator.h"
#include "runtime/device/accelerator.h"
#include "runtime/memory/device_arena.h"
#include "runtime/memory/device_network.h"
#include "runtime/memory/device_unmap_barrier.h"
#include "runtime/memory/host_window.h"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kolo {

class DeviceWindow {
 public:
  DeviceWindow();
  /// Waits up to a second until the other ranks of the host have unmapped this rank's memory. If
  /// some have not by then, because they run on without this rank, the memory stays until the
  /// process ends.
  ~DeviceWindow();

  struct Sizes {
    std::size_t slots = 0;  ///< bytes of all slots together, the same on all ranks
    std::size_t arena = 0;  ///< bytes for users
  };
  /// The transport that carries device memory to other hosts, and Config::gpudirect, the same on
  /// all ranks.
  struct Network {
    Transport& transport;
    std::string mode;
  };

  /// Collective over the world. `accelerator`: this rank's device; null if there is none, and
  /// `reason` says why. `sizes.slots` = 0 on every rank: no window. `host` is open and outlives
  /// this.
  ///
  /// Every rank of a host offers memory of its device, imports the others', and checks by a stamp
  /// that it reads the right memory. If one rank cannot, no rank of the host has a window, and the
  /// host's first rank logs why. If memory is short, the arena shrinks. Over several hosts the
  /// ranks also agree on network().
  ///
  /// Errors: those of the bootstrap; kUnsupported if Config::gpudirect is "on" and a rank cannot.
  Status open(Bootstrap& bootstrap, std::unique_ptr<Accelerator> accelerator, std::string reason,
              const World& world, const HostWindow& host, Sizes sizes, const Network& network,
              const Log& log, Deadline deadline);

  /// Null if this rank has none. Any thread, once open.
  Accelerator* accelerator() const { return accelerator_.get(); }
  /// Why this rank has no accelerator.
  const std::string& no_accelerator() const { return no_accelerator_; }

  /// How device memory reaches other hosts; equal on all ranks.
  const DeviceNetwork& network() const { return network_; }
  /// How ranks of this host access each other's device memory, for people. Empty if no rank has a
  /// device.
  const std::string& inside() const { return inside_; }

  /// Bytes of a slot of the partition, the same on all ranks of the host; 0 without a window.
  std::size_t slot_bytes(int partition) const;
  /// Whether all ranks of `communicator` are on this host and their windows are mapped here; equal
  /// on all its ranks. `partition` is the communicator's; false for HostWindow::kNoPartition.
  bool covers(const Communicator& communicator, int partition) const;
  /// Bytes of a slot of the partition on every host, the same on all ranks of the world, including
  /// ranks that are alone on their host and have no window. 0 if a rank of the world has no device,
  /// if the ranks of some host have not mapped each other's windows, or for
  /// HostWindow::kNoPartition.
  std::size_t slot_bytes_of_hosts(int partition) const;
  /// By world rank; empty for ranks of other hosts.
  std::span<const std::span<std::byte>> windows() const { return windows_; }
  /// For each device, the lowest rank of `communicator` that uses it, ascending. This rank does the
  /// sums for all ranks on its device. Empty if no two ranks share a device. Precondition: covers()
  /// or slot_bytes_of_hosts() > 0.
  std::vector<int> device_leaders(const Communicator& communicator) const;

  /// The part of this rank's window for users; null without a window. Any thread, once open.
  const std::shared_ptr<DeviceArena>& arena() const { return arena_; }

  /// True if a slot is free or the partition has no slots. A partition can have no free slot while
  /// the device still works for a removed process set that had the partition before.
  bool may_take_slot(int partition) const;
  /// Offset of a free slot in the window. Preconditions: the partition has slots, and one is free.
  std::size_t take_slot(int partition);
  void give_back_slot(int partition, std::size_t offset);

 private:
  struct Offer;
  /// What the description says of parts that are switched off.
  void describe_unused(const World& world, Sizes sizes, bool asks_network);
  Status open_window(Bootstrap& bootstrap, const World& world, const HostWindow& host, Sizes sizes,
                     const std::vector<Offer>& offers, const Log& log, Deadline deadline);
  Offer make_offer(Sizes sizes, const Network& network, bool asks_network, bool wants_window);
  Status offer(Sizes sizes, Offer& mine);
  Status agree_on_network(const std::string& mode, const std::vector<Offer>& offers);
  /// Fills device_of_. False if no rank of this host has a device.
  bool note_devices(const World& world, const std::vector<Offer>& offers);
  Status map(const World& world, const std::vector<Offer>& offers, Deadline deadline);
  /// Bytes of a slot, in a window of `bytes` bytes.
  struct SlotBytes {
    std::size_t of_world = 0;
    std::size_t of_set = 0;
  };
  static SlotBytes slots_of(std::size_t bytes, bool has_sets);
  void lay_out(std::size_t bytes, bool has_sets);
  /// Closes if a rank of this host could not map the others' memory. `outcomes`: by rank, why it
  /// could not, or empty.
  bool close_if_unmapped(const World& world, const std::vector<std::string>& outcomes,
                         const Log& log);
  void describe_inside(const World& world);
  void close();

  std::unique_ptr<Accelerator> accelerator_;
  std::string no_accelerator_;
  DeviceNetwork network_;
  std::string inside_;
  std::shared_ptr<DeviceMemory> own_;
  std::shared_ptr<DeviceArena> arena_;
  std::vector<std::unique_ptr<DeviceMemory>> imported_;
  DeviceUnmapBarrier unmap_barrier_;
  std::vector<std::span<std::byte>> windows_;
  /// By world rank: the lowest rank with the same device.
  std::vector<int> device_of_;
  std::array<std::vector<std::size_t>, HostWindow::kPartitions> free_slots_ = {};
  SlotBytes slots_;
  SlotBytes slots_of_hosts_;
};

}  // namespace kolo
