// What a cudaError_t is to kolo: a named Error that says which call failed, on which device, and
// what to do. Called by all of this folder; any thread.
#pragma once

#include <kolo/error.h>

#include <cuda_runtime_api.h>

#include <string_view>

namespace kolo::cuda {

/// Where a process does not get at another one's memory.
inline constexpr const char* kCommonNamespaces =
    "processes in containers need a common IPC and PID namespace (--ipc=host --pid=host)";

/// `call`: the expression that failed; its name is what the message has. `device`: as people know
/// it. Takes the error back from the runtime, so that nobody else's next check finds it.
Error cuda_error(cudaError_t error, std::string_view call, std::string_view device,
                 const char* file, int line);

}  // namespace kolo::cuda

/// Returns from the calling function with a failed call's Error. `device`: a CudaContext or what
/// else has name().
#define KOLO_CUDA_TRY(device, call)                                                       \
  do {                                                                                    \
    const cudaError_t kolo_cuda_error_ = (call);                                          \
    if (kolo_cuda_error_ != cudaSuccess)                                                  \
      return ::kolo::cuda::cuda_error(kolo_cuda_error_, #call, (device).name(), __FILE__, \
                                      __LINE__);                                          \
  } while (false)
