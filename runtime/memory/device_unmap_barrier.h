// DeviceUnmapBarrier: all ranks of a host unmap each other's device memory before its owner frees
// it. CUDA does not define what happens if an owner frees memory that another process has mapped.
// So each rank first unmaps the others' memory, sets a flag on its control segment in the host's
// window, and frees its own memory when all have set theirs. Only DeviceWindow uses it, on the
// thread that starts or ends the runtime.
#pragma once

#include "runtime/base/log.h"
#include "runtime/health/process_watch.h"
#include "runtime/memory/control_segment.h"
#include "runtime/memory/host_window.h"
#include "runtime/topology/world.h"

#include <chrono>
#include <optional>
#include <vector>

namespace kolo {

class DeviceUnmapBarrier {
 public:
  /// `window` is open, and closes after the barrier. Without a window there is no control segment,
  /// and part() returns true at once.
  void open(const HostWindow& window, const World& world, const Log& log);

  /// Precondition: this rank has unmapped everything. Blocks until every other rank of the host has
  /// set its flag or its process has ended, and returns true. Returns false if `longest` passes
  /// first.
  bool part(std::chrono::milliseconds longest);

 private:
  struct Peer {
    int rank;
    const ControlSegment* segment;
  };
  ControlSegment* own_ = nullptr;
  std::vector<Peer> peers_;
  std::optional<ProcessWatch> processes_;
};

}  // namespace kolo
