// How pieces of device memory get from host to host: network cards read and write them on the
// device (GPUDirect RDMA), or they go through pinned memory of the hosts. Each rank tries its own
// device; the ranks then choose alike, for a message is either on both sides. At start, by
// DeviceWindow::open().
#pragma once

#include "runtime/device/accelerator.h"
#include "transport/transport.h"

#include <kolo/error.h>

#include <string>
#include <string_view>
#include <vector>

namespace kolo {

struct DeviceNetwork {
  bool is_direct = false;
  /// One line for people: how, or through what and why; empty where nothing goes to other hosts.
  std::string description = {};
};

/// What one rank says to the others.
struct DeviceNetworkAnswer {
  bool works = false;
  std::string reason = {};  ///< how, or why not
};

/// Tries it with some memory of the device.
DeviceNetworkAnswer try_device_network(Transport& transport, Accelerator& accelerator);

/// Of all ranks' answers, by rank, which are alike everywhere. `mode`: as Config::gpudirect, not
/// "off". "on" where a rank cannot: kUnsupported names the first that cannot, and why.
Result<DeviceNetwork> agree_on_device_network(std::string_view mode,
                                              const std::vector<DeviceNetworkAnswer>& answers);

/// KOLO_GPUDIRECT=off, over several hosts.
DeviceNetwork device_network_switched_off();

}  // namespace kolo
