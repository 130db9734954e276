// DeviceFarewell: how ranks that have mapped each other's device memory part. CUDA does not say
// what becomes of memory that its owner frees while another process has it mapped; so each rank
// first unmaps what is the others', says so on its board in the host's window, and frees its own
// when all have. Opened and used by DeviceWindow alone, on the thread that starts or ends the
// runtime.
#pragma once

#include "runtime/base/log.h"
#include "runtime/communicator/board.h"
#include "runtime/communicator/host_window.h"
#include "runtime/health/process_watch.h"
#include "runtime/topology/world.h"

#include <chrono>
#include <optional>
#include <vector>

namespace kolo {

class DeviceFarewell {
 public:
  /// `window` is open, and is closed after the farewell. Without it, nobody can be asked.
  void open(const HostWindow& window, const World& world, const Log& log);

  /// This rank has unmapped everything. Blocks until no other rank of the host has its memory
  /// mapped any more, for it has said so or its process has ended: true; or `longest` has passed:
  /// false.
  bool part(std::chrono::milliseconds longest);

 private:
  struct Peer {
    int rank;
    const Board* board;
  };
  Board* own_ = nullptr;
  std::vector<Peer> peers_;
  std::optional<ProcessWatch> processes_;
};

}  // namespace kolo
