// GPUDirect RDMA: whether this host's network cards access a GPU's memory without the processor.
// The probe registers memory with the cards, because neither a loaded module nor a version tells.
// Called by the thread that calls init, or by a tool.
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

/// `memory`: memory of a CUDA device. `system`: where sysfs is mounted. Opens UCX on the cards
/// alone; UCX may print its own warnings.
GpuDirect probe_gpudirect(std::span<std::byte> memory, const std::string& system = "/sys");

}  // namespace kolo
