// What the operations of a rank, and of one process set, use; it all outlives them. Token holder
// only.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/exchange/exchange.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/device_window.h"
#include "runtime/memory/host_window.h"
#include "runtime/memory/partition_slots.h"
#include "runtime/nccl/nccl_communicators.h"
#include "runtime/observe/timeline.h"
#include "runtime/planning/chooser.h"
#include "transport/transport.h"

#include <cstddef>
#include <span>
#include <vector>

namespace kolo {

class FlightRecorder;

/// One per rank.
struct RankServices {
  Transport& transport;
  const Device& device;
  HostWindow& window;
  DeviceWindow& devices;
  Arena& arena;
  ScheduleCache& schedules;
  Timeline& timeline;
  FlightRecorder& flight_recorder;
};

/// One per process set of a rank.
struct GroupServices {
  const Communicator& communicator;
  const PartitionSlots& slots;
  Exchange& exchange;
  NcclCommunicators& nccl;
};

/// Windows of the communicator's ranks, by its ranks; `of_world`: of all ranks, empty if there are
/// none.
inline std::vector<std::span<std::byte>> windows_of(
    const Communicator& communicator, std::span<const std::span<std::byte>> of_world) {
  std::vector<std::span<std::byte>> windows;
  if (of_world.empty()) return windows;
  for (const int rank : communicator.ranks())
    windows.push_back(of_world[static_cast<std::size_t>(rank)]);
  return windows;
}

}  // namespace kolo
