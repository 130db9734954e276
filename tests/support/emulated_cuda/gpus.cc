#include "tests/support/emulated_cuda/gpus.h"

#include "runtime/base/environment.h"

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

namespace kolo::test::emulated_cuda {
namespace {

constexpr std::size_t kMemory = std::size_t{16} << 30;

CUuuid uuid_of(int number) {
  CUuuid uuid = {};
  std::memcpy(uuid.bytes, "kolo-emulated", 13);
  uuid.bytes[15] = static_cast<char>(number + 1);
  return uuid;
}

/// The name in CUDA_VISIBLE_DEVICES: "GPU-" and hexadecimal groups of 4, 2, 2, 2 and 6 bytes.
std::string name_of(const CUuuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

std::vector<Gpu*> make_gpus() {
  const Environment environment = Environment::of_process();
  const int all = environment.get_int("EMULATED_GPUS").value_or(1);
  std::vector<int> seen;
  // An empty list shows no device.
  const auto mask = environment.variables().find("CUDA_VISIBLE_DEVICES");
  if (mask != environment.variables().end()) {
    std::istringstream names(mask->second);
    for (std::string name; std::getline(names, name, ',');) {
      int number = -1;
      for (int i = 0; i < all; ++i)
        if (name == std::to_string(i) || (name.size() > 4 && name_of(uuid_of(i)).starts_with(name)))
          number = i;
      if (number < 0) break;  // like CUDA: devices after a wrong name are not visible either
      seen.push_back(number);
    }
  } else {
    for (int i = 0; i < all; ++i) seen.push_back(i);
  }
  std::vector<Gpu*> made;
  for (const int number : seen) {
    auto* const gpu = new Gpu;
    gpu->ordinal = static_cast<int>(made.size());
    gpu->number = number;
    gpu->uuid = uuid_of(number);
    gpu->memory = kMemory;
    made.push_back(gpu);
  }
  return made;
}

/// Has no destructor: the main thread still makes calls after its thread-local objects are gone.
struct Thread {
  std::array<Gpu*, 16> contexts;
  std::size_t depth;
  std::size_t pushed;
  cudaError_t last;

  Gpu* top() const { return depth == 0 ? nullptr : contexts[depth - 1]; }
  void push(Gpu* gpu) { contexts.at(depth++) = gpu; }
};
thread_local Thread mine = {};
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
std::atomic<bool> is_captured_elsewhere = false;

std::mutex failures_mutex;
std::map<std::string, cudaError_t> failures;  // guarded by failures_mutex

CUresult as_driver(cudaError_t error) { return static_cast<CUresult>(error); }

}  // namespace

const std::vector<Gpu*>& gpus() {
  // No destructor here, either.
  static const auto* const all = new std::vector<Gpu*>(make_gpus());
  return *all;
}

Gpu* gpu(int ordinal) {
  return ordinal < 0 || ordinal >= static_cast<int>(gpus().size())
             ? nullptr
             : gpus()[static_cast<std::size_t>(ordinal)];
}

bool devices_reach_each_other() { return !Environment::of_process().get("EMULATED_GPUS_APART"); }

Gpu* current() {
  if (mine.depth == 0 && gpu(0) != nullptr) mine.push(gpu(0));
  return mine.top();
}

CUcontext context_of(Gpu* gpu) { return reinterpret_cast<CUcontext>(gpu); }

cudaError_t told(cudaError_t error) {
  if (error != cudaSuccess) mine.last = error;
  return error;
}

cudaError_t obstacle(const char* function, const Gpu* gpu) {
  {
    const std::lock_guard lock(failures_mutex);
    const auto asked = failures.find(function);
    if (asked != failures.end()) {
      const cudaError_t error = asked->second;
      failures.erase(asked);
      return error;
    }
  }
  return gpu == nullptr ? cudaSuccess : gpu->failure.load();
}

void fail_next(const std::string& function, cudaError_t error) {
  const std::lock_guard lock(failures_mutex);
  failures[function] = error;
}

void break_device(int ordinal, cudaError_t error) { gpu(ordinal)->failure = error; }

void mend_devices() {
  for (Gpu* const each : gpus()) {
    each->failure = cudaSuccess;
    for (auto& peer : each->peers) peer = false;
  }
  const std::lock_guard lock(failures_mutex);
  failures.clear();
}

void capture_elsewhere(bool is_capturing) { is_captured_elsewhere = is_capturing; }
bool captures_elsewhere() { return is_captured_elsewhere; }
bool is_forbidden() { return is_captured_elsewhere && capture_mode == cudaStreamCaptureModeGlobal; }

cudaError_t pending_error() { return mine.last; }
std::size_t pushed_contexts() { return mine.pushed; }
int current_device() { return mine.depth == 0 ? -1 : mine.top()->ordinal; }

namespace {

// The driver's functions, which kolo looks up by name.

CUresult device_get(CUdevice* device, int ordinal) {
  if (gpu(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);  // since CUDA 12.3
  const auto served = Environment::of_process().get("EMULATED_GPUS_SERVED");
  if (attribute != kMpsEnabled || served == "unknown") return CUDA_ERROR_INVALID_VALUE;
  *value = served ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult retain(CUcontext* context, CUdevice device) {
  Gpu* const found = gpu(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const cudaError_t failed = obstacle("cuDevicePrimaryCtxRetain", found);
  if (failed != cudaSuccess) return as_driver(failed);
  *context = context_of(found);
  return CUDA_SUCCESS;
}
CUresult get_current(CUcontext* context) {
  *context = mine.depth == 0 ? nullptr : context_of(mine.top());
  return CUDA_SUCCESS;
}
CUresult push(CUcontext context) {
  mine.push(reinterpret_cast<Gpu*>(context));
  ++mine.pushed;
  return CUDA_SUCCESS;
}
CUresult pop(CUcontext* context) {
  if (mine.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = context_of(mine.top());
  --mine.depth;
  --mine.pushed;
  return CUDA_SUCCESS;
}

}  // namespace

void* driver_function_of_contexts(const std::string& name) {
  const std::pair<const char*, void*> all[] = {
      {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(&device_attribute)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&retain)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&get_current)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&push)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&pop)}};
  for (const auto& [known, address] : all)
    if (name == known) return address;
  return nullptr;
}

}  // namespace kolo::test::emulated_cuda

// The runtime's calls about devices.

using namespace kolo::test::emulated_cuda;  // NOLINT(google-build-using-namespace)

cudaError_t cudaGetDeviceCount(int* count) {
  if (const cudaError_t failed = obstacle(__func__, nullptr); failed != cudaSuccess)
    return told(failed);
  *count = static_cast<int>(gpus().size());
  return *count == 0 ? told(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  Gpu* const found = gpu(ordinal);
  if (found == nullptr) return told(cudaErrorInvalidDevice);
  if (mine.depth > 0) --mine.depth;
  mine.push(found);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  if (const cudaError_t failed = obstacle(__func__, gpu(ordinal)); failed != cudaSuccess)
    return told(failed);
  const Gpu* const found = gpu(ordinal);
  if (found == nullptr) return told(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->uuid = found->uuid;
  properties->totalGlobalMem = found->memory;
  properties->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int ordinal) {
  if (const cudaError_t failed = obstacle(__func__, gpu(ordinal)); failed != cudaSuccess)
    return told(failed);
  const Gpu* const found = gpu(ordinal);
  if (found == nullptr) return told(cudaErrorInvalidDevice);
  const std::string text = "ffff:0" + std::to_string(found->number % 10) + ":00.0";
  if (size <= static_cast<int>(text.size())) return told(cudaErrorInvalidValue);
  std::strcpy(id, text.c_str());
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  if (const cudaError_t failed = obstacle(__func__, nullptr); failed != cudaSuccess)
    return told(failed);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int ordinal) {
  if (const cudaError_t failed = obstacle(__func__, gpu(ordinal)); failed != cudaSuccess)
    return told(failed);
  *value = attribute == cudaDevAttrCanUseHostPointerForRegisteredMem ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (gpu(device) == nullptr || gpu(peer) == nullptr) return told(cudaErrorInvalidDevice);
  *can = device != peer && devices_reach_each_other() ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  EMULATED_CUDA_ENTER(here);
  if (gpu(peer) == nullptr || gpu(peer) == here || !devices_reach_each_other())
    return told(cudaErrorInvalidDevice);
  const bool was = here->peers.at(static_cast<std::size_t>(peer)).exchange(true);
  return was ? told(cudaErrorPeerAccessAlreadyEnabled) : cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(mine.last, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  switch (static_cast<int>(error)) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorMapBufferObjectFailed:
      return "cudaErrorMapBufferObjectFailed";
    default:
      return "an error of CUDA";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "as emulated"; }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget,
                                               cudaFlushGPUDirectRDMAWritesScope) {
  return told(cudaErrorNotSupported);
}
