// The emulated devices, and what CUDA keeps for each thread: its contexts and its last error.
// Shared by the files of this folder; any thread.
#pragma once

#include "tests/support/emulated_cuda/emulated_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

namespace kolo::test::emulated_cuda {

/// One that this process sees. Never ends, since what lives on it may end with the process.
struct Gpu {
  int ordinal = 0;
  int number = 0;  ///< on the host
  CUuuid uuid = {};
  std::size_t memory = 0;
  std::atomic<std::size_t> used = 0;
  std::atomic<cudaError_t> failure = cudaSuccess;
  std::array<std::atomic<bool>, 16> peers = {};  ///< by ordinal: whose memory it was let reach
};

/// Those that CUDA_VISIBLE_DEVICES shows.
const std::vector<Gpu*>& gpus();
/// Null: no such ordinal.
Gpu* gpu(int ordinal);
/// Whether devices of this host reach each other.
bool devices_reach_each_other();

/// The device of this thread's context; its first device's, as the runtime takes it, where it has
/// none. Null: there is no device.
Gpu* current();
CUcontext context_of(Gpu* gpu);

/// Keeps the error for cudaGetLastError() and gives it back.
cudaError_t told(cudaError_t error);
/// What stands in the way of a call: what a test has asked for, or the device's failure.
cudaError_t obstacle(const char* function, const Gpu* gpu);
/// Whether a capture elsewhere stands in the way of what is unsafe beside it, on this thread.
bool is_forbidden();
bool captures_elsewhere();

}  // namespace kolo::test::emulated_cuda

/// The beginning of a call on the current device.
#define EMULATED_CUDA_ENTER(gpu)                                                         \
  ::kolo::test::emulated_cuda::Gpu* const gpu = ::kolo::test::emulated_cuda::current();  \
  if (gpu == nullptr) return ::kolo::test::emulated_cuda::told(cudaErrorNoDevice);       \
  if (const cudaError_t obstacle = ::kolo::test::emulated_cuda::obstacle(__func__, gpu); \
      obstacle != cudaSuccess)                                                           \
  return ::kolo::test::emulated_cuda::told(obstacle)
/// Of a call that is unsafe beside a capture.
#define EMULATED_CUDA_ENTER_UNSAFE(gpu)            \
  EMULATED_CUDA_ENTER(gpu);                        \
  if (::kolo::test::emulated_cuda::is_forbidden()) \
  return ::kolo::test::emulated_cuda::told(cudaErrorStreamCaptureUnsupported)
