// GPUDirect RDMA: whether the network cards of this host read and write a GPU's memory without the
// processor. Asked by registering some with them, for neither a loaded module nor a version tells.
// The thread that calls init, or a tool's.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kolo {

struct GpuDirect {
  bool works = false;
  /// How, or why not: "no RDMA network card on this host (/sys/class/infiniband)".
  std::string reason;
};

/// `memory` is a CUDA device's. `system` is where sysfs lies. Opens UCX on the cards alone; UCX may
/// print warnings of its own.
GpuDirect probe_gpudirect(std::span<std::byte> memory, const std::string& system = "/sys");

}  // namespace kolo
