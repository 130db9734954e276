// CudaContext: one device in this process: its description, its context, and driver functions that
// the CUDA runtime lacks. All objects on the device hold the context, so it outlives them. Any
// thread.
#pragma once

#include "runtime/device/accelerator.h"

#include <kolo/error.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <string_view>

namespace kolo::cuda {

/// Functions of the driver, looked up at run time, so that a program also starts where there is no
/// driver.
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

/// Uses the device's primary context, as the CUDA runtime does. The context stays retained until
/// the process ends, because releasing it as the last user would destroy what the CUDA runtime
/// keeps in it.
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

/// While the scope lives, this thread's CUDA calls go to the device; afterwards the thread is as
/// before. The scope pushes the context and does not set the device: setting the old device back
/// would open a context on a device that the thread may never have used. Calls in the scope are
/// also allowed while another thread captures a CUDA graph, as trainers do.
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
