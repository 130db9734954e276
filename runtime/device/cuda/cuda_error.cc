#include "runtime/device/cuda/cuda_error.h"

#include <fmt/format.h>

namespace kolo::cuda {
namespace {

struct Known {
  cudaError_t error;
  ErrorCode code;
  const char* advice;
};

constexpr const char* kRestart =
    "nothing on this device works in this process any more: end it, and look for the first error "
    "(compute-sanitizer names the kernel)";

constexpr const char* kNoCode =
    "this build has no code for this GPU: build with -DKOLO_CUDA_ARCHITECTURES=<its number>";

constexpr const char* kCaptures =
    "a CUDA graph is being captured, beside which this is not allowed: do it before or after";

/// All other errors are kDevice.
constexpr Known kKnown[] = {
    {cudaErrorMemoryAllocation, ErrorCode::kOutOfMemory,
     "free device memory, or make buffers smaller"},
    {cudaErrorInsufficientDriver, ErrorCode::kUnsupported,
     "install an NVIDIA driver of this CUDA version or newer (nvidia-smi shows what is there)"},
    {cudaErrorSystemDriverMismatch, ErrorCode::kUnsupported,
     "the driver's library and kernel module differ: restart the machine after the update"},
    {cudaErrorStubLibrary, ErrorCode::kUnsupported,
     "the toolkit's stub of libcuda.so was loaded: take its folder out of LD_LIBRARY_PATH"},
    {cudaErrorNoDevice, ErrorCode::kUnsupported,
     "look at CUDA_VISIBLE_DEVICES and at what nvidia-smi -L lists"},
    {cudaErrorInvalidDevice, ErrorCode::kInvalidArgument,
     "ordinals count the devices of CUDA_VISIBLE_DEVICES, from 0"},
    {cudaErrorInvalidResourceHandle, ErrorCode::kInvalidArgument,
     "what the call was given is of another device or process, or is gone already"},
    {cudaErrorStreamCaptureUnsupported, ErrorCode::kUnsupported, kCaptures},
    {cudaErrorStreamCaptureIsolation, ErrorCode::kUnsupported, kCaptures},
    {cudaErrorStreamCaptureImplicit, ErrorCode::kUnsupported, kCaptures},
    {cudaErrorDevicesUnavailable, ErrorCode::kDevice,
     "another process has the device for itself: see its compute mode in nvidia-smi -q"},
    {cudaErrorNoKernelImageForDevice, ErrorCode::kUnsupported, kNoCode},
    {cudaErrorInvalidDeviceFunction, ErrorCode::kUnsupported, kNoCode},
    {cudaErrorUnsupportedPtxVersion, ErrorCode::kUnsupported,
     "the driver is older than the toolkit: update it, or name this GPU in "
     "-DKOLO_CUDA_ARCHITECTURES"},
    {cudaErrorNotSupported, ErrorCode::kUnsupported, "this device or driver cannot do it"},
    {cudaErrorPeerAccessUnsupported, ErrorCode::kUnsupported,
     "these devices do not reach each other (nvidia-smi topo -p2p r)"},
    {cudaErrorTooManyPeers, ErrorCode::kUnsupported, "use fewer devices together"},
    {cudaErrorMapBufferObjectFailed, ErrorCode::kUnsupported, kCommonNamespaces},
    {cudaErrorHostMemoryAlreadyRegistered, ErrorCode::kInvalidArgument,
     "it is pinned already, and pinned memory is for all devices of a process: pin it once"},
    {cudaErrorInitializationError, ErrorCode::kDevice,
     "a process that was forked after CUDA was used cannot use it: start it anew"},
    {cudaErrorCudartUnloading, ErrorCode::kShutdown, "the process is ending"},
    {cudaErrorIllegalAddress, ErrorCode::kDevice, kRestart},
    {cudaErrorMisalignedAddress, ErrorCode::kDevice, kRestart},
    {cudaErrorLaunchFailure, ErrorCode::kDevice, kRestart},
    {cudaErrorLaunchTimeout, ErrorCode::kDevice, kRestart},
    {cudaErrorHardwareStackError, ErrorCode::kDevice, kRestart},
    {cudaErrorIllegalInstruction, ErrorCode::kDevice, kRestart},
    {cudaErrorAssert, ErrorCode::kDevice, kRestart},
    {cudaErrorECCUncorrectable, ErrorCode::kDevice,
     "the memory has failed: take the device out of use (nvidia-smi -q -d ECC)"},
    {cudaErrorNvlinkUncorrectable, ErrorCode::kDevice,
     "NVLink has failed: see nvidia-smi nvlink -e"},
};

Known known(cudaError_t error) {
  for (const Known& each : kKnown)
    if (each.error == error) return each;
  return {error, ErrorCode::kDevice, "see the CUDA runtime's documentation of this error"};
}

}  // namespace

Error cuda_error(cudaError_t error, std::string_view call, std::string_view device,
                 const char* file, int line) {
  static_cast<void>(cudaGetLastError());
  const Known what = known(error);
  return {what.code,
          fmt::format("{} failed on {}: {}, {}; {}", call.substr(0, call.find('(')), device,
                      cudaGetErrorName(error), cudaGetErrorString(error), what.advice),
          file, line};
}

}  // namespace kolo::cuda
