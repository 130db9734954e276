#include "runtime/device/cuda/cuda_context.h"

#include "runtime/base/check.h"
#include "runtime/device/cuda/cuda_error.h"

#include <algorithm>

namespace kolo::cuda {
namespace {

/// Kernels can take 32 KiB of parameters since this version.
constexpr int kOldestDriver = 12010;

/// CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which is missing in headers before CUDA 12.3.
constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// A device's name before the device has a context, for KOLO_CUDA_TRY.
struct Named {
  std::string text;
  std::string_view name() const { return text; }
};

template <class Function>
Status find(Function& function, const char* symbol) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(symbol, &address, kOldestDriver, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(symbol, &address, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess)
    return cuda_error(error, "cudaGetDriverEntryPoint", symbol, __FILE__, __LINE__);
  if (found != cudaDriverEntryPointSuccess)
    return KOLO_ERROR(kUnsupported, "the CUDA driver has no {}; update it", symbol);
  function = reinterpret_cast<Function>(address);
  return {};
}

Result<AcceleratorInfo> describe(int ordinal) {
  const Named device{fmt::format("device {}", ordinal)};
  cudaDeviceProp properties = {};
  KOLO_CUDA_TRY(device, cudaGetDeviceProperties(&properties, ordinal));
  int runtime = 0;
  int driver = 0;
  char bus_id[32] = "";
  KOLO_CUDA_TRY(device, cudaRuntimeGetVersion(&runtime));
  KOLO_CUDA_TRY(device, cudaDriverGetVersion(&driver));
  KOLO_CUDA_TRY(device, cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), ordinal));
  if (driver < kOldestDriver)
    return KOLO_ERROR(
        kUnsupported, "{} ({}) has a driver for CUDA {}, but kolo needs {} or newer; update it",
        device.text, properties.name, version_text(driver), version_text(kOldestDriver));
  AcceleratorInfo info{
      .ordinal = ordinal,
      .name = properties.name,
      .bus_id = bus_id,
      .versions = fmt::format("CUDA {}, driver {}", version_text(runtime), version_text(driver)),
      .memory = properties.totalGlobalMem,
      .processors = properties.multiProcessorCount};
  static_assert(sizeof(properties.uuid.bytes) == sizeof(info.uuid));
  std::transform(std::begin(properties.uuid.bytes), std::end(properties.uuid.bytes),
                 info.uuid.begin(), [](char byte) { return static_cast<std::uint8_t>(byte); });
  return info;
}

/// The driver's errors have the same numbers as the runtime's.
cudaError_t as_runtime(CUresult result) { return static_cast<cudaError_t>(result); }

}  // namespace

Result<Driver> Driver::load() {
  Driver driver;
  KOLO_TRY(find(driver.device_get, "cuDeviceGet"));
  KOLO_TRY(find(driver.device_attribute, "cuDeviceGetAttribute"));
  KOLO_TRY(find(driver.retain, "cuDevicePrimaryCtxRetain"));
  KOLO_TRY(find(driver.current, "cuCtxGetCurrent"));
  KOLO_TRY(find(driver.push, "cuCtxPushCurrent"));
  KOLO_TRY(find(driver.pop, "cuCtxPopCurrent"));
  KOLO_TRY(find(driver.address_range, "cuMemGetAddressRange"));
  KOLO_TRY(find(driver.pointer_attribute, "cuPointerGetAttribute"));
  return driver;
}

Result<std::shared_ptr<const CudaContext>> CudaContext::open(int ordinal) {
  const Accelerators found = find_accelerators();
  if (ordinal < 0 || ordinal >= found.count) {
    return KOLO_ERROR(
        kUnsupported, "there is no CUDA device {}: {}", ordinal,
        found.count == 0 ? found.reason : fmt::format("this process sees {}", found.count));
  }
  std::shared_ptr<CudaContext> context(new CudaContext);
  KOLO_ASSIGN(context->info_, describe(ordinal));
  context->name_ = fmt::format("device {} ({}, {})", ordinal, context->info_.name,
                               to_string(context->info_.uuid));
  KOLO_ASSIGN(context->driver_, Driver::load());
  const Driver& driver = context->driver_;
  CUdevice device = 0;
  KOLO_CUDA_TRY(*context, as_runtime(driver.device_get(&device, ordinal)));
  int is_served = 0;  // older drivers do not know the attribute
  context->info_.is_served =
      driver.device_attribute(&is_served, kMpsEnabled, device) == CUDA_SUCCESS && is_served != 0;
  KOLO_CUDA_TRY(*context, as_runtime(driver.retain(&context->context_, device)));
  return std::shared_ptr<const CudaContext>(std::move(context));
}

CudaScope::CudaScope(const CudaContext& context) : driver_(context.driver_) {
  CUcontext current = nullptr;
  const bool is_there = driver_.current(&current) == CUDA_SUCCESS && current == context.context_;
  // If this fails, the calls in the scope fail as well, and report it.
  if (!is_there) is_pushed_ = driver_.push(context.context_) == CUDA_SUCCESS;
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&captures_));
}

CudaScope::~CudaScope() {
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&captures_));
  CUcontext mine = nullptr;
  if (is_pushed_) driver_.pop(&mine);
}

}  // namespace kolo::cuda
