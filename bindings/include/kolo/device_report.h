// What kolo finds of this rank's CUDA device, for people: kolo-info prints it. Thread-safe.
#pragma once

#include <kolo/export.h>

#include <string>

namespace kolo {

struct DeviceReport {
  int ordinal = -1;    ///< in this process; −1: it has none
  std::string reason;  ///< why it has none
  std::string name;    ///< "NVIDIA H200"
  std::string uuid;    ///< "GPU-8932f937-…"
  std::string versions;
  /// Whether memory of it can be handed to other processes of this host, and why not.
  bool cuda_ipc = false;
  std::string cuda_ipc_reason;
  /// Whether the network cards read and write its memory (GPUDirect RDMA), and how or why not.
  bool gpu_direct = false;
  std::string gpu_direct_reason;
};

/// After init(). Takes tens of milliseconds and some memory of the device: it tries them.
KOLO_API DeviceReport device_report();

}  // namespace kolo
