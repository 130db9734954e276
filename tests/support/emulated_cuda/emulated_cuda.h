// The CUDA runtime and driver as far as kolo calls them, emulated by threads and host memory. A
// program without a GPU links it in place of libcudart, so that all of runtime/device/cuda runs,
// between processes too. A device is memory and streams that are threads; kernels are the .cu
// files, compiled for the host. It is not CUDA: a test on it says nothing about a real GPU. Where
// CUDA leaves behaviour open, the emulation takes the harsher one. Freed memory faults in peers
// that still map it. Kernels fail if they reach host memory that is not pinned. A device reaches
// another's memory only after that was allowed. A failed device stays failed.
//
// Environment variables: EMULATED_GPUS, the number of devices of a host (default 1), of which
// CUDA_VISIBLE_DEVICES shows some; EMULATED_GPUS_APART=1: devices do not reach each other;
// EMULATED_GPUS_SERVED=1: NVIDIA MPS is reported to run, or =unknown: the driver cannot tell.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace kolo::test::emulated_cuda {

/// Makes the next call of this function ("cudaMalloc") fail once, on whichever thread.
void fail_next(const std::string& function, cudaError_t error);
/// Makes every later call on the device fail with this error, as after a faulty kernel.
void break_device(int ordinal, cudaError_t error);
/// Resets the devices to the state at the start of the process, for the next test.
void mend_devices();

/// While true, every stream but the default one captures a graph, and all wait for the default one.
void capture(bool is_capturing);
/// While true, another thread captures a graph on its own stream, in CUDA's default mode. Calls
/// that are unsafe during this fail in threads that have not left this mode; waiting for the device
/// fails in all threads.
void capture_elsewhere(bool is_capturing);
/// Device memory outside cudaMalloc's blocks, like PyTorch's expandable segments; freed by
/// cudaFree.
void* allocate_in_pool(std::size_t bytes);

/// Objects that are alive in this process.
struct Alive {
  std::size_t blocks = 0;  ///< blocks of device memory
  std::size_t pinned = 0;
  std::size_t imports = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
  friend bool operator==(const Alive&, const Alive&) = default;
};
Alive alive();
/// Number of kernels that their first launch loaded, which on a GPU waits for the device.
std::size_t late_loads();
/// The error that this thread's next cudaGetLastError() would give.
cudaError_t pending_error();
/// The device of this thread; -1 if it has none.
int current_device();
/// Number of contexts that this thread has pushed and not popped.
std::size_t pushed_contexts();

}  // namespace kolo::test::emulated_cuda
