// The GPU that kolo-perf measures on with --device cuda: memory of it, copies and a stream. Any
// thread. cuda_gpu.cc has it, no_cuda_gpu.cc says that this build does not.
#pragma once

#include <kolo/collectives.h>
#include <kolo/error.h>

#include <cstddef>
#include <memory>

namespace kolo::perf {

class Gpu {
 public:
  virtual ~Gpu() = default;
  /// Throws std::runtime_error, as all of these do.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Any of its memory or the host's to any, on the stream.
  virtual void copy(void* destination, const void* source, std::size_t bytes) = 0;
  virtual CudaStream stream() const = 0;
  /// The stream has done all that it was given.
  virtual void synchronize() = 0;
};

/// This rank's, after kolo::init(). kUnsupported, kDevice.
Result<std::unique_ptr<Gpu>> open_gpu();

}  // namespace kolo::perf
