// Report on this rank's CUDA device for people; kolo-info prints it. Any thread.
//
//   const kolo::DeviceReport report = kolo::device_report();
//   if (report.ordinal < 0) std::cerr << "no CUDA device: " << report.reason << '\n';
#pragma once

#include <kolo/export.h>

#include <string>

namespace kolo {

struct DeviceReport {
  int ordinal = -1;    ///< in the numbering of this process; −1 without a device
  std::string reason;  ///< why this rank has no device
  std::string name;    ///< "NVIDIA H200"
  std::string uuid;    ///< "GPU-8932f937-…"
  std::string versions;
  /// Whether this device's memory can be shared with other processes of this host, and why not.
  bool cuda_ipc = false;
  std::string cuda_ipc_reason;
  /// Whether the network cards read and write this device's memory (GPUDirect RDMA), and how or why
  /// not.
  bool gpu_direct = false;
  std::string gpu_direct_reason;
};

/// Call it after init(). It probes CUDA IPC and GPUDirect RDMA, which takes tens of milliseconds
/// and some device memory.
KOLO_API DeviceReport device_report();

}  // namespace kolo
