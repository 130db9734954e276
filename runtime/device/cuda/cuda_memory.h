// Device memory, pinned host memory and peers' memory, for CudaAccelerator. Any thread. Allocating
// and freeing may wait for the device.
#pragma once

#include "runtime/device/cuda/cuda_context.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kolo::cuda {

using ContextPointer = std::shared_ptr<const CudaContext>;

// Implement the members of Accelerator with the same names.
Result<std::unique_ptr<DeviceMemory>> allocate(ContextPointer context, std::size_t bytes);
Result<std::unique_ptr<DeviceMemory>> pin(ContextPointer context, std::span<std::byte> host);
Result<std::unique_ptr<DeviceMemory>> allocate_pinned(ContextPointer context, std::size_t bytes);
Result<std::string> export_memory(const CudaContext& context, std::span<std::byte> memory);
Result<std::unique_ptr<DeviceMemory>> import_memory(ContextPointer context, std::string_view key);
MemoryLocation location_of(const CudaContext& context, const void* address);

/// How memory is released.
enum class MemoryEnd : std::uint8_t { kFree, kUnpin, kFreePinned, kCloseImport, kNothing };
/// `base`: the address that was allocated or opened; `bytes` lies within.
std::unique_ptr<DeviceMemory> own_memory(ContextPointer context, void* base,
                                         std::span<std::byte> bytes, MemoryEnd end);

}  // namespace kolo::cuda
