// DeviceWindow: this rank's accelerator, and memory of it that all ranks of the host have mapped,
// through which a schedule with mapped scratch reads and writes its peers' devices. Opened once, at
// start. It has the places of HostWindow: slots for the world, and slots for each of some process
// sets, one of which each running operation borrows as its scratch. Behind them lies the arena, for
// users' memory. Token holder only, but for open(), accelerator() and arena().
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/device_arena.h"
#include "runtime/communicator/device_farewell.h"
#include "runtime/communicator/device_network.h"
#include "runtime/communicator/host_window.h"
#include "runtime/device/accelerator.h"

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
  /// Waits a moment for the other ranks of the host to unmap its memory. What they have mapped
  /// after that, for they go on without this rank, stays until the process ends.
  ~DeviceWindow();

  struct Sizes {
    std::size_t slots = 0;  ///< bytes of all slots together, alike on all ranks
    std::size_t arena = 0;  ///< bytes for users
  };
  /// What carries device memory to other hosts, and Config::gpudirect, alike on all ranks.
  struct Network {
    Transport& transport;
    std::string mode;
  };

  /// Collective over the world. `accelerator`: this rank's, null if it has none, for `reason`.
  /// Every rank of a host offers memory of its device and imports the others', and sees by a stamp
  /// that it reads them. Where one of them cannot, the host's ranks stay without a window, and its
  /// first rank says why in one line; where there is no memory for all of the arena, it is as small
  /// as it must be. An error is returned only if the bootstrap fails. No slots on every rank: no
  /// window is wanted. Over several hosts the ranks agree on network(), too: kUnsupported where a
  /// mode is asked for that they have not. `host` is open, and outlives this.
  Status open(Bootstrap& bootstrap, std::unique_ptr<Accelerator> accelerator, std::string reason,
              const World& world, const HostWindow& host, Sizes sizes, const Network& network,
              const Log& log, Deadline deadline);

  /// Null where this rank has none. Any thread, once open.
  Accelerator* accelerator() const { return accelerator_.get(); }
  /// Why it has none.
  const std::string& no_accelerator() const { return no_accelerator_; }

  /// Alike on all ranks.
  const DeviceNetwork& network() const { return network_; }
  /// How ranks of this host reach each other's device memory, for people; empty where none has any.
  const std::string& inside() const { return inside_; }

  /// Bytes of a place's slot, alike on all ranks of the host; 0 without a window.
  std::size_t slot_bytes(int place) const;
  /// Whether every rank of `communicator`, whose place this is, is on this host and has its window
  /// mapped here. Alike on all its ranks. Of HostWindow::kNoPlace it is none.
  bool covers(const Communicator& communicator, int place) const;
  /// What a place's slots have on all hosts at least, where on every host of several ranks these
  /// have mapped each other's windows, and all ranks of the world have a device; else, and of
  /// HostWindow::kNoPlace, 0. Alike on all ranks, also on one that is alone on its host, and needs
  /// no window.
  std::size_t slot_bytes_of_hosts(int place) const;
  /// By world rank; empty for ranks of other hosts.
  std::span<const std::span<std::byte>> windows() const { return windows_; }
  /// Ranks of `communicator`, ascending, of which each does the sums for all of its ranks that
  /// share its device: its lowest. Empty where no two of them share one. Precondition: it covers
  /// it, or has slots on all hosts.
  std::vector<int> device_leaders(const Communicator& communicator) const;

  /// Users' part of the own window; null without one. Any thread, once open.
  const std::shared_ptr<DeviceArena>& arena() const { return arena_; }

  /// Whether a slot may be taken, or there are none at all. None is free where a set that was
  /// removed had this place before, while the device has not done with all that it was given.
  bool may_take_slot(int place) const;
  /// Where a free slot begins. Preconditions: a window that has such a place, and a free slot.
  std::size_t take_slot(int place);
  void give_back_slot(int place, std::size_t offset);

 private:
  struct Offer;
  Status offer(Sizes sizes, Offer& mine);
  Status agree_on_network(const std::string& mode, const std::vector<Offer>& offers);
  Status map(const World& world, const std::vector<Offer>& offers, Deadline deadline);
  /// Of a place's slot, in a window of so many bytes.
  struct SlotBytes {
    std::size_t of_world = 0;
    std::size_t of_set = 0;
  };
  static SlotBytes slots_of(std::size_t bytes, bool has_sets);
  void lay_out(std::size_t bytes, bool has_sets);
  void close();

  std::unique_ptr<Accelerator> accelerator_;
  std::string no_accelerator_;
  DeviceNetwork network_;
  std::string inside_;
  std::shared_ptr<DeviceMemory> own_;
  std::shared_ptr<DeviceArena> arena_;
  std::vector<std::unique_ptr<DeviceMemory>> imported_;
  DeviceFarewell farewell_;
  std::vector<std::span<std::byte>> windows_;
  /// By world rank: the lowest rank that has the same device.
  std::vector<int> device_of_;
  std::array<std::vector<std::size_t>, HostWindow::kPlaces> free_slots_ = {};
  SlotBytes slots_;
  SlotBytes slots_of_hosts_;
};

}  // namespace kolo
