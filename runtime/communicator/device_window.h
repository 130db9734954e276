// DeviceWindow: this rank's accelerator, and memory of it that all ranks of the host have mapped,
// through which a schedule with mapped scratch reads and writes its peers' devices. Opened once, at
// start; of the world alone. It has slots, one of which each running operation borrows as its
// scratch. Token holder only, but for open() and accelerator().
#pragma once

#include "runtime/base/deadline.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/host_window.h"
#include "runtime/device/accelerator.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kolo {

class DeviceWindow {
 public:
  DeviceWindow();
  ~DeviceWindow();

  /// Collective over the world. `accelerator`: this rank's, null if it has none, for `reason`.
  /// Every rank of a host offers `bytes` of its device and imports the others'. Where one of them
  /// cannot, the host's ranks stay without a window, and its first rank says why in one line. An
  /// error is returned only if the bootstrap fails. No bytes on every rank: no window is wanted.
  Status open(Bootstrap& bootstrap, std::unique_ptr<Accelerator> accelerator, std::string reason,
              const World& world, std::size_t bytes, const Log& log, Deadline deadline);

  /// Null where this rank has none. Any thread, once open.
  Accelerator* accelerator() const { return accelerator_.get(); }
  /// Why it has none.
  const std::string& no_accelerator() const { return no_accelerator_; }

  /// 0 without a window; alike on all ranks of the host.
  std::size_t slot_bytes() const { return slot_bytes_; }
  /// Whether this is the world, all of it has a window, and it is mapped here. Alike on all ranks.
  bool covers(const Communicator& communicator) const;
  /// By world rank; empty for ranks of other hosts.
  std::span<const std::span<std::byte>> windows() const { return windows_; }
  /// World ranks, ascending, of which each does the sums for all that share its device: its lowest
  /// rank. Empty where no two ranks of this host share one.
  const std::vector<int>& device_leaders() const { return leaders_; }

  /// Where a free slot begins. Preconditions: a window, and fewer than HostWindow::kSlots taken.
  std::size_t take_slot();
  void give_back_slot(std::size_t offset);

 private:
  struct Offer;
  Status map(const World& world, const std::vector<Offer>& offers);
  void close();

  std::unique_ptr<Accelerator> accelerator_;
  std::string no_accelerator_;
  std::unique_ptr<DeviceMemory> own_;
  std::vector<std::unique_ptr<DeviceMemory>> imported_;
  std::vector<std::span<std::byte>> windows_;
  std::vector<int> leaders_;
  std::vector<std::size_t> free_slots_;
  std::size_t slot_bytes_ = 0;
  bool everywhere_ = false;  ///< on one host, all of whose ranks have it
};

}  // namespace kolo
