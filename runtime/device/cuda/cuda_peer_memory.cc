// Shares device memory between the processes of one host, by CUDA IPC. Called by CudaAccelerator;
// any thread.
#include "runtime/base/check.h"
#include "runtime/device/cuda/cuda_error.h"
#include "runtime/device/cuda/cuda_memory.h"
#include "runtime/device/cuda/peer_key.h"

#include <unistd.h>

#include <optional>
#include <random>

namespace kolo::cuda {
namespace {

const std::array<std::uint32_t, 4>& this_process() {
  static const std::array<std::uint32_t, 4> number = [] {
    std::random_device random;
    return std::array<std::uint32_t, 4>{random(), random(), random(), random()};
  }();
  return number;
}

/// The ordinal of a device in this process; nothing if the device is hidden from it.
std::optional<int> ordinal_of(const DeviceUuid& uuid) {
  const int count = find_accelerators().count;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties = {};
    if (cudaGetDeviceProperties(&properties, ordinal) == cudaSuccess &&
        std::memcmp(properties.uuid.bytes, uuid.data(), uuid.size()) == 0)
      return ordinal;
  }
  return std::nullopt;
}

/// Whether the device can access memory of `peer`, as far as this is known before trying.
Status can_reach(const CudaContext& context, const DeviceUuid& peer) {
  if (peer == context.info().uuid) return {};
  const std::optional<int> ordinal = ordinal_of(peer);
  if (!ordinal) return {};  // hidden by CUDA_VISIBLE_DEVICES: the driver may still map its memory
  int can = 0;
  KOLO_CUDA_TRY(context, cudaDeviceCanAccessPeer(&can, context.info().ordinal, *ordinal));
  if (can != 0) return {};
  return KOLO_ERROR(kUnsupported,
                    "{} cannot reach the memory of {}: there is no NVLink and no PCIe path between "
                    "them that allows it (nvidia-smi topo -p2p r)",
                    context.name(), to_string(peer));
}

/// CUDA's errors, besides cudaErrorMapBufferObjectFailed, if it cannot map the memory of another
/// process: from another PID namespace an invalid context, from another container an invalid
/// handle.
bool is_refusal(cudaError_t error) {
  return error == cudaErrorDeviceUninitialized || error == cudaErrorInvalidValue ||
         error == cudaErrorInvalidResourceHandle;
}

/// Memory of this process needs no mapping. Memory of another device needs peer access.
Status enable_peer(const CudaContext& context, const DeviceUuid& peer) {
  if (peer == context.info().uuid) return {};
  const std::optional<int> ordinal = ordinal_of(peer);
  if (!ordinal)
    return KOLO_ERROR(kInternal, "{} is of this process, which does not see it", to_string(peer));
  const cudaError_t error = cudaDeviceEnablePeerAccess(*ordinal, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
  KOLO_CUDA_TRY(context, error);
  return {};
}

}  // namespace

Result<std::string> export_memory(const CudaContext& context, std::span<std::byte> memory) {
  const CudaScope scope(context);
  if (location_of(context, memory.data()) != MemoryLocation::kDevice)
    return KOLO_ERROR(kInvalidArgument, "memory at {} is not of {}, so it cannot be exported",
                      fmt::ptr(memory.data()), context.name());
  const auto address = reinterpret_cast<CUdeviceptr>(memory.data());
  int is_capable = 0;
  const CUresult asked = context.driver().pointer_attribute(
      &is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
  if (asked == CUDA_SUCCESS && is_capable == 0)
    return KOLO_ERROR(kUnsupported,
                      "memory at {} on {} is no block of cudaMalloc (of PyTorch's expandable "
                      "segments, or of a memory pool), which CUDA IPC cannot share; copy it into "
                      "kolo's own, or leave expandable_segments off",
                      fmt::ptr(memory.data()), context.name());
  CUdeviceptr base = 0;
  std::size_t extent = 0;
  KOLO_CUDA_TRY(context,
                static_cast<cudaError_t>(context.driver().address_range(&base, &extent, address)));
  PeerKey key{.uuid = context.info().uuid,
              .process = this_process(),
              .pid = getpid(),
              .address = address,
              .offset = address - base,
              .size = memory.size()};
  KOLO_CUDA_TRY(context, cudaIpcGetMemHandle(&key.handle, reinterpret_cast<void*>(base)));
  return key.text();
}

Result<std::unique_ptr<DeviceMemory>> import_memory(ContextPointer context, std::string_view text) {
  PeerKey key;
  if (!key.parse(text))
    return KOLO_ERROR(kMismatch,
                      "what a peer gave is no key to device memory ({} bytes); all ranks need the "
                      "same version of kolo",
                      text.size());
  const CudaScope scope(*context);
  KOLO_TRY(can_reach(*context, key.uuid));
  if (key.process == this_process()) {
    KOLO_TRY(enable_peer(*context, key.uuid));
    auto* const own = reinterpret_cast<std::byte*>(key.address);
    return own_memory(std::move(context), own, {own, key.size}, MemoryEnd::kNothing);
  }
  void* base = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&base, key.handle, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) {
    Error failed = cuda_error(error, "cudaIpcOpenMemHandle", context->name(), __FILE__, __LINE__);
    failed.message += fmt::format(" (memory of process {} on {}{})", key.pid, to_string(key.uuid),
                                  ordinal_of(key.uuid) ? "" : ", which this process does not see");
    if (is_refusal(error)) {
      failed.code = ErrorCode::kUnsupported;
      failed.message += fmt::format("; {}", kCommonNamespaces);
    }
    return failed;
  }
  auto* const begin = static_cast<std::byte*>(base) + key.offset;
  return own_memory(std::move(context), base, {begin, key.size}, MemoryEnd::kCloseImport);
}

}  // namespace kolo::cuda
