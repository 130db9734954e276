// Launches of kolo's kernels, which were compiled for the host.
#include "runtime/device/cuda/kernels.h"

#include "runtime/device/cuda/adasum.h"
#include "tests/support/emulated_cuda/kernel_language.h"
#include "tests/support/emulated_cuda/memory.h"
#include "tests/support/emulated_cuda/streams.h"

#include <barrier>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

thread_local kolo::test::emulated_cuda::Place threadIdx;
thread_local kolo::test::emulated_cuda::Place blockIdx;
thread_local kolo::test::emulated_cuda::Place gridDim;

namespace kolo::test::emulated_cuda {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): what is launched

/// Does a launch of so many blocks, with parameters that were copied when it was handed in.
using Launch = std::function<void(std::uint32_t blocks)>;
/// Copies the parameters; null where memory in them is not the device's to touch.
using Prepare = std::function<Launch(const void* parameters)>;

thread_local std::barrier<>* block_barrier = nullptr;

/// Threads one after the other: for kernels whose threads do not wait for each other.
template <class Parameters>
Launch in_turn(const void* kernel, const Parameters& parameters) {
  return [kernel, parameters](std::uint32_t blocks) {
    const auto call = reinterpret_cast<void (*)(Parameters)>(const_cast<void*>(kernel));
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < kThreads; ++threadIdx.x) call(parameters);
  };
}

/// Threads at once.
template <class Parameters>
Launch together(const void* kernel, const Parameters& parameters) {
  return [kernel, parameters](std::uint32_t blocks) {
    const auto call = reinterpret_cast<void (*)(Parameters)>(const_cast<void*>(kernel));
    std::barrier<> barrier(kThreads);
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        block_barrier = &barrier;
        threadIdx.x = thread;
        gridDim.x = blocks;
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
          call(parameters);
          barrier.arrive_and_wait();  // the next block's shared memory is this one's
        }
      });
    for (std::thread& thread : threads) thread.join();
  };
}

template <class AnyBatch>
Prepare combination(const void* kernel) {
  return [kernel](const void* parameters) -> Launch {
    const auto batch = std::make_shared<AnyBatch>();
    std::memcpy(static_cast<void*>(batch.get()), parameters, sizeof(AnyBatch));
    for (std::uint32_t piece = 0; piece < batch->pieces; ++piece)
      for (std::uint32_t k = 0; k < batch->sources + batch->destinations; ++k)
        // In elements of some size; a byte each at least.
        if (!is_reached(reinterpret_cast<const void*>(batch->addresses(piece)[k]),
                        batch->count(piece)))
          return nullptr;
    return [kernel, batch](std::uint32_t blocks) { in_turn(kernel, *batch)(blocks); };
  };
}

Prepare adasum_pass(const void* kernel) {
  return [kernel](const void* parameters) -> Launch {
    AdasumCall call;
    std::memcpy(&call, parameters, sizeof(call));
    for (const std::uint64_t address : {call.destination, call.a, call.b, call.dots})
      if (!is_reached(reinterpret_cast<const void*>(address), 1)) return nullptr;
    return together(kernel, call);
  };
}

std::map<const void*, Prepare> make_table() {
  std::map<const void*, Prepare> table;
  const auto add = [&](Kernel kernel) {
    table[kernel.small] = combination<SmallBatch>(kernel.small);
    if (kernel.large != nullptr) table[kernel.large] = combination<LargeBatch>(kernel.large);
  };
  add(copy_kernel());
  add(complex64_product());
  add(complex128_product());
  for (const auto kernels :
       {float32_kernels, float64_kernels, float16_kernels, bfloat16_kernels, int64_kernels,
        int32_kernels, int16_kernels, int8_kernels, uint8_kernels})
    for (const Kernel kernel : kernels()) add(kernel);
  for (const DataType half : {DataType::kFloat16, DataType::kBFloat16}) {
    add(cast_kernel(DataType::kFloat32, half));
    add(cast_kernel(half, DataType::kFloat32));
  }
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16}) {
    const AdasumKernels kernels = adasum_kernels(type);
    table[kernels.dots] = adasum_pass(kernels.dots);
    table[kernels.combine] = adasum_pass(kernels.combine);
  }
  return table;
}

const Prepare* find(const void* kernel) {
  static const std::map<const void*, Prepare> table = make_table();
  const auto found = table.find(kernel);
  return found == table.end() ? nullptr : &found->second;
}

struct Loaded {
  std::mutex mutex;
  std::set<const void*> kernels;  // guarded by mutex, as is the next
  std::size_t late = 0;
  std::mutex running;  ///< one kernel at a time: what is __shared__ is static
};
Loaded& loaded() {
  static auto* const all = new Loaded;
  return *all;
}

}  // namespace

void meet_block() { block_barrier->arrive_and_wait(); }

std::size_t late_loads() {
  const std::lock_guard lock(loaded().mutex);
  return loaded().late;
}

void* driver_function(const char* name) {
  void* const function = driver_function_of_memory(name);
  return function != nullptr ? function : driver_function_of_contexts(name);
}

}  // namespace kolo::test::emulated_cuda

using namespace kolo::test::emulated_cuda;  // NOLINT(google-build-using-namespace)

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  EMULATED_CUDA_ENTER(gpu);
  if (find(kernel) == nullptr) return told(cudaErrorInvalidDeviceFunction);
  *attributes = {};
  const std::lock_guard lock(loaded().mutex);
  loaded().kernels.insert(kernel);
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 blocks, dim3 threads, void** parameters,
                             std::size_t, cudaStream_t stream) {
  EMULATED_CUDA_ENTER(gpu);
  const auto* const prepare = find(kernel);
  if (prepare == nullptr) return told(cudaErrorInvalidDeviceFunction);
  if (blocks.x == 0 || blocks.y != 1 || blocks.z != 1 || threads.x != kolo::cuda::kThreads)
    return told(cudaErrorInvalidConfiguration);
  {
    const std::lock_guard lock(loaded().mutex);
    if (loaded().kernels.insert(kernel).second) ++loaded().late;
  }
  auto launch = (*prepare)(parameters[0]);
  return give(stream, gpu, [gpu, launch = std::move(launch), count = blocks.x] {
    const std::lock_guard lock(loaded().running);
    if (launch == nullptr) {
      gpu->failure = cudaErrorIllegalAddress;
      return;
    }
    launch(count);
  });
}

namespace {
cudaError_t find_in_driver(const char* symbol, void** function,
                           cudaDriverEntryPointQueryResult* found) {
  *function = driver_function(symbol);
  *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
}  // namespace

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  return find_in_driver(symbol, function, found);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* found) {
  return find_in_driver(symbol, function, found);
}
#endif
