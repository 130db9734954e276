// For a build with CUDA.
#include "tools/perf/gpu.h"

#include <kolo/device_report.h>
#include <kolo/kolo.h>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <stdexcept>

namespace kolo::perf {
namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(fmt::format("rank {}: {}: {}", rank(), call, cudaGetErrorString(error)));
}

class CudaGpu final : public Gpu {
 public:
  CudaGpu() {
    use();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaGpu() override { static_cast<void>(cudaStreamDestroy(stream_)); }
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    use();
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "cudaMalloc");
    return {memory, [](void* mine) { static_cast<void>(cudaFree(mine)); }};
  }
  void copy(void* destination, const void* source, std::size_t bytes) override {
    use();
    check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync");
  }
  CudaStream stream() const override { return {stream_}; }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  /// Selects the device for this thread.
  static void use() { check(cudaSetDevice(device_ordinal()), "cudaSetDevice"); }

  cudaStream_t stream_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Gpu>> open_gpu() {
  if (device_ordinal() < 0) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("--device cuda: rank {} has no CUDA device: {}", rank(),
                             device_report().reason)};
  }
  return std::unique_ptr<Gpu>(std::make_unique<CudaGpu>());
}

}  // namespace kolo::perf
