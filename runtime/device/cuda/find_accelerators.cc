// Which CUDA devices this process may use, or why there are none. Called by the runtime and by
// kolo-info, which links this file only; any thread.
#include "runtime/device/accelerator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace kolo {

Accelerators find_accelerators() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return {count, ""};
  // Clear the error, so that no later check finds it.
  static_cast<void>(cudaGetLastError());
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return {0, "no CUDA driver is loaded (libcuda.so.1)"};
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    return {0,
            "the CUDA driver shows this process no device (CUDA_VISIBLE_DEVICES, nvidia-smi -L)"};
  const char* const advice =
      error == cudaErrorSystemNotReady
          ? "; on hosts with NVSwitch, nvidia-fabricmanager must run (systemctl status)"
          : "";
  return {0, fmt::format("CUDA does not start: {}, {}{}", cudaGetErrorName(error),
                         cudaGetErrorString(error), advice)};
}

}  // namespace kolo
