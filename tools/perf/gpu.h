// The GPU that kolo-perf measures on with --device cuda: memory, copies and a stream. Any thread.
// Implemented in cuda_gpu.cc; no_cuda_gpu.cc reports that this build has none.
#pragma once

#include <kolo/collectives.h>
#include <kolo/error.h>

#include <cstddef>
#include <memory>

namespace kolo::perf {

class Gpu {
 public:
  virtual ~Gpu() = default;
  /// Throws std::runtime_error on failure, as all these functions do.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Copies on the stream, between any two places in this GPU's or the host's memory.
  virtual void copy(void* destination, const void* source, std::size_t bytes) = 0;
  virtual CudaStream stream() const = 0;
  /// Waits until the stream has done all its work.
  virtual void synchronize() = 0;
};

/// This rank's GPU, after kolo::init(). kUnsupported, kDevice.
Result<std::unique_ptr<Gpu>> open_gpu();

}  // namespace kolo::perf
