#include "runtime/device/cuda/cuda_stream.h"

#include "runtime/base/check.h"
#include "runtime/device/cuda/adasum.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_memory.h"
#include "runtime/device/cuda/kernels.h"

namespace kolo::cuda {

Result<std::unique_ptr<DeviceStream>> CudaStream::make(Accelerator& accelerator,
                                                       std::shared_ptr<EventPool> events) {
  std::unique_ptr<CudaStream> stream(new CudaStream(accelerator, std::move(events)));
  const CudaContext& context = stream->context();
  const CudaScope scope(context);
  int least = 0;
  int greatest = 0;
  KOLO_CUDA_TRY(context, cudaDeviceGetStreamPriorityRange(&least, &greatest));
  KOLO_CUDA_TRY(context,
                cudaStreamCreateWithPriority(&stream->stream_, cudaStreamNonBlocking, greatest));
  return std::unique_ptr<DeviceStream>(std::move(stream));
}

CudaStream::~CudaStream() {
  if (stream_ == nullptr) return;
  const CudaScope scope(context());
  static_cast<void>(cudaStreamSynchronize(stream_));
  static_cast<void>(cudaStreamDestroy(stream_));
  static_cast<void>(cudaGetLastError());
}

Status CudaStream::combine(const Combination& what, const PieceList& pieces) {
  BatchPlan plan(what, pieces, static_cast<std::uint32_t>(context().info().processors));
  KOLO_TRY(plan.check());
  const Kernel kernel = kernel_of(plan.kernel());
  const CudaScope scope(context());
  const std::uint32_t words = kernel.large != nullptr ? kLargeWords : kSmallWords;
  while (plan.next(batch_, words)) {
    const void* const fitting = BatchPlan::is_small(batch_) ? kernel.small : kernel.large;
    KOLO_TRY(launch(fitting, batch_.tiles, &batch_));
  }
  return {};
}

Status CudaStream::adasum(DataType type, std::byte* destination, const std::byte* a,
                          const std::byte* b, std::size_t count) {
  const AdasumKernels kernels = adasum_kernels(type);
  KOLO_CHECK(kernels.dots != nullptr);
  if (count == 0) return {};
  if (dots_ == nullptr) {
    KOLO_ASSIGN(dots_, accelerator_.allocate(kMostDotBlocks * sizeof(Dots)));
  }
  AdasumCall call{.destination = reinterpret_cast<std::uint64_t>(destination),
                  .a = reinterpret_cast<std::uint64_t>(a),
                  .b = reinterpret_cast<std::uint64_t>(b),
                  .count = count,
                  .dots = reinterpret_cast<std::uint64_t>(dots_->bytes().data()),
                  .dot_blocks = dot_blocks(count)};
  const CudaScope scope(context());
  KOLO_TRY(launch(kernels.dots, call.dot_blocks, &call));
  return launch(kernels.combine, combining_blocks(count), &call);
}

Status CudaStream::copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (bytes == 0) return {};
  const CudaScope scope(context());
  KOLO_CUDA_TRY(context(), cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream_));
  return {};
}

Status CudaStream::zero(std::byte* memory, std::size_t bytes) {
  if (bytes == 0) return {};
  const CudaScope scope(context());
  KOLO_CUDA_TRY(context(), cudaMemsetAsync(memory, 0, bytes, stream_));
  return {};
}

Status CudaStream::launch(const void* kernel, std::uint32_t blocks, void* parameters) {
  KOLO_CUDA_TRY(context(),
                cudaLaunchKernel(kernel, dim3(blocks), dim3(kThreads), &parameters, 0, stream_));
  return {};
}

}  // namespace kolo::cuda
