#include "runtime/device/cuda/cuda_memory.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/device/cuda/cuda_error.h"

namespace kolo::cuda {
namespace {

/// Granularity of a mapping in a peer. Allocations are rounded up, so that exported memory shares
/// no granule with other memory.
constexpr std::size_t kGranule = std::size_t{2} << 20;

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory(ContextPointer context, void* base, std::span<std::byte> bytes, MemoryEnd end)
      : context_(std::move(context)), base_(base), bytes_(bytes), end_(end) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // Errors are ignored: a device that has failed, or a process that ends, has reported so
  // elsewhere.
  ~CudaMemory() override {
    const CudaScope scope(*context_);
    switch (end_) {
      case MemoryEnd::kFree:
        static_cast<void>(cudaFree(base_));
        break;
      case MemoryEnd::kUnpin:
        static_cast<void>(cudaHostUnregister(base_));
        break;
      case MemoryEnd::kFreePinned:
        static_cast<void>(cudaFreeHost(base_));
        break;
      case MemoryEnd::kCloseImport:
        static_cast<void>(cudaIpcCloseMemHandle(base_));
        break;
      case MemoryEnd::kNothing:
        break;
    }
    static_cast<void>(cudaGetLastError());
  }

  std::span<std::byte> bytes() const override { return bytes_; }

 private:
  ContextPointer context_;
  void* base_;
  std::span<std::byte> bytes_;
  MemoryEnd end_;
};

Error out_of_memory(const CudaContext& context, std::size_t bytes) {
  static_cast<void>(cudaGetLastError());
  std::size_t left = 0;
  std::size_t all = 0;
  static_cast<void>(cudaMemGetInfo(&left, &all));
  return KOLO_ERROR(
      kOutOfMemory,
      "{} has no {} bytes left for kolo: {} of {} are free; make the model's batches, "
      "or kolo's buffers, smaller",
      context.name(), bytes, left, all);
}

/// Uses a stream of its own, because the default streams, also a thread's, wait for the trainer's
/// work.
Status clear(const CudaContext& context, void* base, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  KOLO_CUDA_TRY(context, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaError_t error = cudaMemsetAsync(base, 0, bytes, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  static_cast<void>(cudaStreamDestroy(stream));
  KOLO_CUDA_TRY(context, error);
  return {};
}

}  // namespace

std::unique_ptr<DeviceMemory> own_memory(ContextPointer context, void* base,
                                         std::span<std::byte> bytes, MemoryEnd end) {
  return std::make_unique<CudaMemory>(std::move(context), base, bytes, end);
}

Result<std::unique_ptr<DeviceMemory>> allocate(ContextPointer context, std::size_t bytes) {
  const CudaScope scope(*context);
  const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), kGranule);
  void* base = nullptr;
  const cudaError_t error = cudaMalloc(&base, whole);
  if (error == cudaErrorMemoryAllocation) return out_of_memory(*context, bytes);
  KOLO_CUDA_TRY(*context, error);
  auto memory = own_memory(context, base, {static_cast<std::byte*>(base), bytes}, MemoryEnd::kFree);
  KOLO_TRY(clear(*context, base, whole));
  return memory;
}

Result<std::unique_ptr<DeviceMemory>> pin(ContextPointer context, std::span<std::byte> host) {
  const CudaScope scope(*context);
  int is_reached_at_its_address = 0;
  KOLO_CUDA_TRY(*context, cudaDeviceGetAttribute(&is_reached_at_its_address,
                                                 cudaDevAttrCanUseHostPointerForRegisteredMem,
                                                 context->info().ordinal));
  if (is_reached_at_its_address == 0)
    return KOLO_ERROR(kUnsupported,
                      "{} reaches pinned memory at another address than the host does",
                      context->name());
  KOLO_CUDA_TRY(*context, cudaHostRegister(host.data(), host.size(),
                                           cudaHostRegisterPortable | cudaHostRegisterMapped));
  return own_memory(std::move(context), host.data(), host, MemoryEnd::kUnpin);
}

Result<std::unique_ptr<DeviceMemory>> allocate_pinned(ContextPointer context, std::size_t bytes) {
  const CudaScope scope(*context);
  void* base = nullptr;
  const cudaError_t error = cudaHostAlloc(&base, std::max<std::size_t>(bytes, 1),
                                          cudaHostAllocPortable | cudaHostAllocMapped);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return KOLO_ERROR(
        kOutOfMemory,
        "the host has no {} bytes left that can be pinned for {}; free some, or raise "
        "the limit of the container",
        bytes, context->name());
  }
  KOLO_CUDA_TRY(*context, error);
  return own_memory(std::move(context), base, {static_cast<std::byte*>(base), bytes},
                    MemoryEnd::kFreePinned);
}

MemoryLocation location_of(const CudaContext& context, const void* address) {
  const CudaScope scope(context);
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return MemoryLocation::kHost;
  }
  switch (attributes.type) {
    case cudaMemoryTypeUnregistered:
      return MemoryLocation::kHost;
    case cudaMemoryTypeHost:
      return attributes.devicePointer == address ? MemoryLocation::kPinnedHost
                                                 : MemoryLocation::kHost;
    case cudaMemoryTypeDevice:
    case cudaMemoryTypeManaged:
      return attributes.device == context.info().ordinal ? MemoryLocation::kDevice
                                                         : MemoryLocation::kOtherDevice;
  }
  return MemoryLocation::kHost;
}

}  // namespace kolo::cuda
