// A CUDA device as an Accelerator. The runtime makes one for the rank's device. Threads: see
// accelerator.h.
#include "runtime/base/check.h"
#include "runtime/device/cuda/cuda_context.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_event.h"
#include "runtime/device/cuda/cuda_memory.h"
#include "runtime/device/cuda/cuda_stream.h"
#include "runtime/device/cuda/kernels.h"

namespace kolo {
namespace cuda {
namespace {

class CudaAccelerator final : public Accelerator {
 public:
  explicit CudaAccelerator(ContextPointer context)
      : context_(std::move(context)), events_(std::make_shared<EventPool>(context_)) {}

  /// Loads all kernels now. Otherwise CUDA loads a module at a kernel's first launch and waits for
  /// the device, and so for a peer that may itself wait for this kernel.
  Status load_kernels() {
    const CudaScope scope(*context_);
    cudaFuncAttributes attributes = {};
    for (const void* const kernel : all_kernels())
      KOLO_CUDA_TRY(*context_, cudaFuncGetAttributes(&attributes, kernel));
    return {};
  }

  const AcceleratorInfo& info() const override { return context_->info(); }

  Result<std::unique_ptr<DeviceStream>> new_stream() override {
    return CudaStream::make(*this, events_);
  }
  Result<std::shared_ptr<DeviceEvent>> record(void* native_stream) override {
    auto* const stream = static_cast<cudaStream_t>(native_stream);
    KOLO_TRY(check_capture(*context_, stream));
    return record_event(events_, stream);
  }

  Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) override {
    return cuda::allocate(context_, bytes);
  }
  Result<std::unique_ptr<DeviceMemory>> pin(std::span<std::byte> host) override {
    return cuda::pin(context_, host);
  }
  Result<std::unique_ptr<DeviceMemory>> allocate_pinned(std::size_t bytes) override {
    return cuda::allocate_pinned(context_, bytes);
  }
  Result<std::string> export_memory(const DeviceMemory& memory) override {
    return cuda::export_memory(*context_, memory.bytes());
  }
  Result<std::unique_ptr<DeviceMemory>> import_memory(std::string_view key) override {
    return cuda::import_memory(context_, key);
  }
  MemoryLocation location_of(const void* address) override {
    return cuda::location_of(*context_, address);
  }
  Status synchronize() override {
    const CudaScope scope(*context_);
    KOLO_CUDA_TRY(*context_, cudaDeviceSynchronize());
    return {};
  }
  Status take_network_writes() override {
    int ordering = cudaGPUDirectRDMAWritesOrderingNone;
    KOLO_TRY(ask(cudaDevAttrGPUDirectRDMAWritesOrdering, ordering));
    if (ordering >= cudaGPUDirectRDMAWritesOrderingOwner) return {};
    int flushes = 0;
    KOLO_TRY(ask(cudaDevAttrGPUDirectRDMAFlushWritesOptions, flushes));
    if ((flushes & cudaFlushGPUDirectRDMAWritesOptionHost) == 0)
      return KOLO_ERROR(kUnsupported,
                        "{} neither orders nor flushes what network cards write to it",
                        context_->name());
    const CudaScope scope(*context_);
    KOLO_CUDA_TRY(*context_, cudaDeviceFlushGPUDirectRDMAWrites(
                                 cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                 cudaFlushGPUDirectRDMAWritesToOwner));
    return {};
  }
  void use_for(const std::function<void()>& call) override {
    const CudaScope scope(*context_);
    call();
  }

 private:
  Status ask(cudaDeviceAttr attribute, int& value) const {
    KOLO_CUDA_TRY(*context_, cudaDeviceGetAttribute(&value, attribute, info().ordinal));
    return {};
  }

  ContextPointer context_;
  std::shared_ptr<EventPool> events_;
};

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<Accelerator>> open_accelerator(int ordinal) {
  KOLO_ASSIGN(cuda::ContextPointer context, cuda::CudaContext::open(ordinal));
  auto accelerator = std::make_unique<cuda::CudaAccelerator>(std::move(context));
  KOLO_TRY(accelerator->load_kernels());
  return std::unique_ptr<Accelerator>(std::move(accelerator));
}

}  // namespace kolo
