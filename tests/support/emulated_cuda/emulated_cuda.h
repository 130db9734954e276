// The CUDA runtime and driver as far as kolo calls them, by threads and memory of the host: what a
// program is linked with in place of libcudart where there is no GPU, so that all of
// runtime/device/cuda runs, between processes too. A device is memory and streams that are threads;
// kernels are the .cu files, compiled for the host. It is no CUDA: nothing that runs here counts as
// working on a GPU. Where CUDA leaves behaviour open, the harsher one is taken: memory that is
// freed faults in peers that still map it, kernels that reach memory of the host that is not pinned
// fail, one device reaches another's memory only where that was allowed, and a failed device stays
// failed.
//
// In the environment: EMULATED_GPUS, how many devices a host has (default 1), of which
// CUDA_VISIBLE_DEVICES shows some; EMULATED_GPUS_APART=1, which do not reach each other;
// EMULATED_GPUS_SERVED=1, NVIDIA MPS is said to run, or =unknown, the driver cannot tell.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace kolo::test::emulated_cuda {

/// The next call of that function ("cudaMalloc") fails, once, on whichever thread.
void fail_next(const std::string& function, cudaError_t error);
/// A kernel of the device has gone wrong: every call from now on fails with that error.
void break_device(int ordinal, cudaError_t error);
/// Devices are as at the start of the process; for the next test.
void mend_devices();

/// While it is true, every stream captures a graph but for the default one, for which all wait.
void capture(bool is_capturing);
/// While it is true, another thread captures a graph on a stream of its own, in CUDA's default
/// mode: what is unsafe beside that fails in threads that have not left this mode, and waiting for
/// the device in all.
void capture_elsewhere(bool is_capturing);
/// Device memory that is no block of cudaMalloc's, as PyTorch's expandable segments; for cudaFree.
void* allocate_in_pool(std::size_t bytes);

/// What is alive in this process.
struct Alive {
  std::size_t blocks = 0;  ///< of device memory
  std::size_t pinned = 0;
  std::size_t imports = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
  friend bool operator==(const Alive&, const Alive&) = default;
};
Alive alive();
/// Kernels that were first loaded by their launch, which on a GPU waits for the device.
std::size_t late_loads();
/// The error that this thread's next cudaGetLastError() would give.
cudaError_t pending_error();
/// Of this thread; -1: it has none.
int current_device();
/// Contexts that this thread has pushed and not popped.
std::size_t pushed_contexts();

}  // namespace kolo::test::emulated_cuda
