// Memory of a device, pinned memory of the host, and memory of peers: what CudaAccelerator hands
// out. Any thread; making it and ending it may wait for the device.
#pragma once

#include "runtime/device/cuda/cuda_context.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kolo::cuda {

using ContextPointer = std::shared_ptr<const CudaContext>;

// The members of Accelerator of the same names.
Result<std::unique_ptr<DeviceMemory>> allocate(ContextPointer context, std::size_t bytes);
Result<std::unique_ptr<DeviceMemory>> pin(ContextPointer context, std::span<std::byte> host);
Result<std::unique_ptr<DeviceMemory>> allocate_pinned(ContextPointer context, std::size_t bytes);
Result<std::string> export_memory(const CudaContext& context, std::span<std::byte> memory);
Result<std::unique_ptr<DeviceMemory>> import_memory(ContextPointer context, std::string_view key);
MemoryPlace place_of(const CudaContext& context, const void* address);

/// How memory ends.
enum class MemoryEnd : std::uint8_t { kFree, kUnpin, kFreePinned, kCloseImport, kNothing };
/// `base`: what was allocated or opened; `bytes` lies in it.
std::unique_ptr<DeviceMemory> own_memory(ContextPointer context, void* base,
                                         std::span<std::byte> bytes, MemoryEnd end);

}  // namespace kolo::cuda
