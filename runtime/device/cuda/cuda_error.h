// Turns a cudaError_t into an Error that says which call failed, on which device, and what to do.
// Called by all files of this folder; any thread.
#pragma once

#include <kolo/error.h>

#include <cuda_runtime_api.h>

#include <string_view>

namespace kolo::cuda {

/// Advice if a process cannot access the memory of another one.
inline constexpr const char* kCommonNamespaces =
    "processes in containers need a common IPC and PID namespace (--ipc=host --pid=host)";

/// `call`: the failed expression; the message has its function's name. `device`: its name for
/// people. Clears the CUDA runtime's last error, so that no later check finds it.
Error cuda_error(cudaError_t error, std::string_view call, std::string_view device,
                 const char* file, int line);

}  // namespace kolo::cuda

/// Returns from the calling function with the Error of a failed call. `device`: a CudaContext, or
/// any object with name().
#define KOLO_CUDA_TRY(device, call)                                                       \
  do {                                                                                    \
    const cudaError_t kolo_cuda_error_ = (call);                                          \
    if (kolo_cuda_error_ != cudaSuccess)                                                  \
      return ::kolo::cuda::cuda_error(kolo_cuda_error_, #call, (device).name(), __FILE__, \
                                      __LINE__);                                          \
  } while (false)
