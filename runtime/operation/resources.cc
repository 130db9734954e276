#include "runtime/operation/resources.h"

namespace kolo {
namespace {

int shared_cores(const Communicator& communicator) {
  const World& world = communicator.world();
  const bool shares =
      communicator.size() > 1 && !world.has_core_for_each_rank(communicator.ranks());
  return shares ? world.cores_of(communicator.ranks()) : 0;
}

}  // namespace

Resources resources_of(const GroupServices& group, const HostWindow& window,
                       const DeviceWindow& devices) {
  const Communicator& communicator = group.communicator;
  const int partition = group.slots.partition();
  const bool maps_devices = devices.covers(communicator, partition);
  const std::size_t device_slot_of_hosts = devices.slot_bytes_of_hosts(partition);
  Resources resources{.rank = communicator.rank(),
                      .size = communicator.size(),
                      .layout = communicator.world().layout_of(communicator.ranks()),
                      .nodes = group.slots.usable()
                                   ? communicator.world().nodes_of(communicator.ranks())
                                   : HostLayout(),
                      .exchange = group.exchange.limits(),
                      .shared_cores = group.slots.usable() ? shared_cores(communicator) : 0,
                      .maps_windows = group.slots.usable(),
                      .slot_bytes = window.slot_bytes(partition),
                      .slot_bytes_over_hosts = group.slots.bytes_over_hosts(),
                      .devices = {.map_windows = maps_devices,
                                  .slot_bytes = devices.slot_bytes(partition),
                                  .slot_bytes_of_hosts = device_slot_of_hosts,
                                  .network_is_direct = devices.network().is_direct,
                                  .use_nccl = group.nccl.wanted()}};
  if (maps_devices || device_slot_of_hosts > 0)
    resources.devices.leaders = devices.device_leaders(communicator);
  return resources;
}

Policy policy_of(const LinkCosts& links, const Config& config) {
  return {.inside = links.inside,
          .across = links.across,
          .forced = algorithm_of(config.algorithm),
          .deterministic = config.deterministic != 0,
          .chunk_bytes = config.chunk_size,
          .chunks_in_flight = config.chunks_in_flight,
          .device_chunk = config.device_chunk};
}

}  // namespace kolo
