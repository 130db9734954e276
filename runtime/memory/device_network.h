// How device memory gets from host to host: network cards access it directly (GPUDirect RDMA), or
// it goes through pinned host memory. Each rank tries its own device. Then all ranks make the same
// choice, because both sides of a message must use the same path. Called at start by
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
  /// One line for people: how, or through what and why. Empty if nothing goes to other hosts.
  std::string description = {};
};

/// What one rank tells the others.
struct DeviceNetworkAnswer {
  bool works = false;
  std::string reason = {};  ///< how, or why not
};

/// Tries GPUDirect RDMA with some memory of the device.
DeviceNetworkAnswer try_device_network(Transport& transport, Accelerator& accelerator);

/// Decides from the answers of all ranks, by rank. Every rank has the same answers, so all ranks
/// decide the same. `mode`: "auto" or "on", as Config::gpudirect. kUnsupported for "on" if a rank
/// cannot; the error names the first such rank and its reason.
Result<DeviceNetwork> agree_on_device_network(std::string_view mode,
                                              const std::vector<DeviceNetworkAnswer>& answers);

/// The choice for KOLO_GPUDIRECT=off over several hosts.
DeviceNetwork device_network_switched_off();

}  // namespace kolo
