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

namespace kolo {

/// One per rank.
struct RankServices {
  Transport& transport;
  const Device& device;
  HostWindow& window;
  DeviceWindow& devices;
  Arena& arena;
  ScheduleCache& schedules;
  Timeline& timeline;
};

/// One per process set of a rank.
struct GroupServices {
  const Communicator& communicator;
  const PartitionSlots& slots;
  Exchange& exchange;
  NcclCommunicators& nccl;
};

}  // namespace kolo
