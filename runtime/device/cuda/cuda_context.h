// CudaContext: one device in this process: what it is, its context, and the driver's functions that
// the runtime lacks. Held by all that lives on the device, so that it outlives them; any thread.
#pragma once

#include "runtime/device/accelerator.h"

#include <kolo/error.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <string_view>

namespace kolo::cuda {

/// Of the driver, found when the program runs: a program is to start where there is none.
struct Driver {
  decltype(&::cuDeviceGet) device_get = nullptr;
  decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&::cuCtxGetCurrent) current = nullptr;
  decltype(&::cuCtxPushCurrent) push = nullptr;
  decltype(&::cuCtxPopCurrent) pop = nullptr;
  decltype(&::cuMemGetAddressRange) address_range = nullptr;
  decltype(&::cuPointerGetAttribute) pointer_attribute = nullptr;

  static Result<Driver> load();
};

/// Its context is the device's primary one, as CUDA's runtime has it, and is retained until the
/// process ends: who released it as the last one would destroy what the runtime keeps in it.
class CudaContext {
 public:
  static Result<std::shared_ptr<const CudaContext>> open(int ordinal);
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext() = default;

  const AcceleratorInfo& info() const { return info_; }
  const Driver& driver() const { return driver_; }
  /// "device 0 (NVIDIA H200, GPU-8932…)".
  std::string_view name() const { return name_; }

 private:
  friend class CudaScope;
  CudaContext() = default;

  AcceleratorInfo info_;
  Driver driver_;
  std::string name_;
  CUcontext context_ = nullptr;
};

/// While it lives, this thread's CUDA calls are for that device. Then it is as it was: pushing
/// leaves alone which device the thread had, where setting it back would open one that it had never
/// used. A capture of a graph by another thread, as trainers make them, is none of these calls'
/// business, and does not forbid them.
class CudaScope {
 public:
  explicit CudaScope(const CudaContext& context);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const Driver& driver_;
  bool is_pushed_ = false;
  cudaStreamCaptureMode captures_ = cudaStreamCaptureModeThreadLocal;
};

}  // namespace kolo::cuda
