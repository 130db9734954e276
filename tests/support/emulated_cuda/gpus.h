// The emulated devices, and the state that CUDA keeps for each thread: its contexts and its last
// error. Shared by the files of this folder; any thread.
#pragma once

#include "tests/support/emulated_cuda/emulated_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

namespace kolo::test::emulated_cuda {

/// A device that this process sees. Never destroyed, because memory on it may live until the
/// process ends.
struct Gpu {
  int ordinal = 0;
  int number = 0;  ///< on the host
  CUuuid uuid = {};
  std::size_t memory = 0;
  std::atomic<std::size_t> used = 0;
  std::atomic<cudaError_t> failure = cudaSuccess;
  std::array<std::atomic<bool>, 16> peers =
      {};  ///< by ordinal: the devices whose memory it may reach
};

/// The devices that CUDA_VISIBLE_DEVICES shows.
const std::vector<Gpu*>& gpus();
/// Null if there is no such ordinal.
Gpu* gpu(int ordinal);
/// Whether devices of this host reach each other.
bool devices_reach_each_other();

/// The device of this thread's context, or, without a context, the first device, as in the runtime.
/// Null if there is no device.
Gpu* current();
CUcontext context_of(Gpu* gpu);

/// Keeps the error for cudaGetLastError() and returns it.
cudaError_t told(cudaError_t error);
/// The error that a call must return: one that a test has requested, or the device's failure.
cudaError_t obstacle(const char* function, const Gpu* gpu);
/// Whether calls that are unsafe during another thread's capture must fail on this thread.
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
/// The beginning of a call that is unsafe during a capture.
#define EMULATED_CUDA_ENTER_UNSAFE(gpu)            \
  EMULATED_CUDA_ENTER(gpu);                        \
  if (::kolo::test::emulated_cuda::is_forbidden()) \
  return ::kolo::test::emulated_cuda::told(cudaErrorStreamCaptureUnsupported)
