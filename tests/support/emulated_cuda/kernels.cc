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

using namespace cuda;  // NOLINT(google-build-using-namespace): the launched kernels

/// Runs a launch of `blocks` blocks, with parameters that were copied at the call.
using Launch = std::function<void(std::uint32_t blocks)>;
/// Copies the parameters; null if they contain memory that the device may not touch.
using Prepare = std::function<Launch(const Gpu* gpu, const void* parameters)>;

thread_local std::barrier<>* block_barrier = nullptr;

/// Threads run one after the other: for kernels whose threads do not wait for each other.
template <class Parameters>
Launch in_turn(const void* kernel, const Parameters& parameters) {
  return [kernel, parameters](std::uint32_t blocks) {
    const auto call = reinterpret_cast<void (*)(Parameters)>(const_cast<void*>(kernel));
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
      for (threadIdx.x = 0; threadIdx.x < kThreads; ++threadIdx.x) call(parameters);
  };
}

/// Threads run at the same time.
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
          barrier.arrive_and_wait();  // the next block reuses this block's shared memory
        }
      });
    for (std::thread& thread : threads) thread.join();
  };
}

template <class AnyBatch>
Prepare combination(const void* kernel, std::size_t source_size, std::size_t target_size) {
  return [=](const Gpu* gpu, const void* parameters) -> Launch {
    const auto batch = std::make_shared<AnyBatch>();
    std::memcpy(static_cast<void*>(batch.get()), parameters, sizeof(AnyBatch));
    for (std::uint32_t piece = 0; piece < batch->pieces; ++piece)
      for (std::uint32_t k = 0; k < batch->sources + batch->destinations; ++k)
        if (!is_reached(gpu, reinterpret_cast<const void*>(batch->addresses(piece)[k]),
                        batch->count(piece) * (k < batch->sources ? source_size : target_size)))
          return nullptr;
    return [kernel, batch](std::uint32_t blocks) { in_turn(kernel, *batch)(blocks); };
  };
}

Prepare adasum_pass(const void* kernel, std::size_t size) {
  return [kernel, size](const Gpu* gpu, const void* parameters) -> Launch {
    AdasumCall call;
    std::memcpy(&call, parameters, sizeof(call));
    const auto reaches = [gpu](std::uint64_t address, std::size_t bytes) {
      return is_reached(gpu, reinterpret_cast<const void*>(address), bytes);
    };
    for (const std::uint64_t address : {call.destination, call.a, call.b})
      if (!reaches(address, call.count * size)) return nullptr;
    if (!reaches(call.dots, call.dot_blocks * sizeof(Dots))) return nullptr;
    return together(kernel, call);
  };
}

std::map<const void*, Prepare> make_table() {
  std::map<const void*, Prepare> table;
  const auto add = [&](Kernel kernel, DataType source, DataType target) {
    const std::size_t from = size_of(source);
    const std::size_t to = size_of(target);
    table[kernel.small] = combination<SmallBatch>(kernel.small, from, to);
    if (kernel.large != nullptr)
      table[kernel.large] = combination<LargeBatch>(kernel.large, from, to);
  };
  const auto add_type = [&](DataType type, const KernelsOfType& kernels) {
    for (const Kernel kernel : kernels) add(kernel, type, type);
  };
  add(copy_kernel(), DataType::kUInt8, DataType::kUInt8);
  add(complex64_product(), DataType::kComplex64, DataType::kComplex64);
  add(complex128_product(), DataType::kComplex128, DataType::kComplex128);
  add_type(DataType::kFloat32, float32_kernels());
  add_type(DataType::kFloat64, float64_kernels());
  add_type(DataType::kFloat16, float16_kernels());
  add_type(DataType::kBFloat16, bfloat16_kernels());
  add_type(DataType::kInt64, int64_kernels());
  add_type(DataType::kInt32, int32_kernels());
  add_type(DataType::kInt16, int16_kernels());
  add_type(DataType::kInt8, int8_kernels());
  add_type(DataType::kUInt8, uint8_kernels());
  for (const DataType half : {DataType::kFloat16, DataType::kBFloat16}) {
    for (const KernelKind kind : {KernelKind::kCopy, KernelKind::kSum, KernelKind::kProduct}) {
      add(cast_kernel(DataType::kFloat32, half, kind), DataType::kFloat32, half);
      add(cast_kernel(half, DataType::kFloat32, kind), half, DataType::kFloat32);
    }
  }
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16}) {
    const AdasumKernels kernels = adasum_kernels(type);
    table[kernels.dots] = adasum_pass(kernels.dots, size_of(type));
    table[kernels.combine] = adasum_pass(kernels.combine, size_of(type));
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
  std::mutex running;  ///< one kernel at a time: __shared__ variables are static
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
  auto launch = (*prepare)(gpu, parameters[0]);
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
