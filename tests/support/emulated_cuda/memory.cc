// Device memory is a memfd, so that other processes map it through /proc. Pinned memory is any
// other memory, and is recorded here.
#include "tests/support/emulated_cuda/memory.h"

#include "tests/support/emulated_cuda/gpus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace kolo::test::emulated_cuda {
namespace {

enum class Kind { kDevice, kPooled, kImported, kAllocatedPinned, kRegistered };

struct Block {
  std::size_t size = 0;
  Kind kind = Kind::kDevice;
  Gpu* gpu = nullptr;
  int file = -1;
};

struct Blocks {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> by_begin;  // guarded by mutex

  /// The block that holds the address, with the lock held; end() if none does.
  std::map<std::uintptr_t, Block>::iterator find(std::uintptr_t address) {
    auto next = by_begin.upper_bound(address);
    if (next == by_begin.begin()) return by_begin.end();
    --next;
    return address < next->first + next->second.size ? next : by_begin.end();
  }
};

Blocks& blocks() {
  static auto* const all = new Blocks;  // objects in it may end after static objects
  return *all;
}

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }
bool is_device(Kind kind) { return kind <= Kind::kImported; }

/// Removes the block that begins there from the list; false if there is none of these kinds.
bool take(const void* begin, std::initializer_list<Kind> kinds, Block& taken) {
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().by_begin.find(number_of(begin));
  if (found == blocks().by_begin.end() ||
      std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end())
    return false;
  taken = found->second;
  blocks().by_begin.erase(found);
  return true;
}

void note(const void* begin, const Block& block) {
  const std::lock_guard lock(blocks().mutex);
  blocks().by_begin[number_of(begin)] = block;
}

/// Contents of a handle; the rest of its 64 bytes is zero.
struct Handle {
  std::uint32_t magic;
  std::int32_t pid;
  std::int32_t file;
  std::uint32_t number;  ///< number of the device on the host
  std::uint64_t inode;
  std::uint64_t size;
};
constexpr std::uint32_t kMagic = 0x4b43'5544;
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

std::uint64_t inode_of(int file) {
  struct stat about = {};
  return fstat(file, &about) == 0 ? about.st_ino : 0;
}

CUresult address_range(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().find(address);
  if (found == blocks().by_begin.end() || !is_device(found->second.kind))
    return CUDA_ERROR_NOT_FOUND;
  *base = found->first;
  *size = found->second.size;
  return CUDA_SUCCESS;
}

CUresult pointer_attribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().find(address);
  if (found == blocks().by_begin.end() ||
      attribute != CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(value) = found->second.kind == Kind::kDevice ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace

bool is_reached(const Gpu* gpu, const void* address, std::size_t bytes) {
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().find(number_of(address));
  if (found == blocks().by_begin.end()) return false;
  const auto& [begin, block] = *found;
  if (number_of(address) + bytes > begin + block.size) return false;
  if (!is_device(block.kind) || block.gpu == gpu) return true;
  return block.kind != Kind::kImported && gpu->peers[static_cast<std::size_t>(block.gpu->ordinal)];
}

bool is_within(const void* address, std::size_t bytes) {
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().find(number_of(address));
  return found == blocks().by_begin.end() ||
         number_of(address) + bytes <= found->first + found->second.size;
}

bool is_pageable(const void* address) {
  const std::lock_guard lock(blocks().mutex);
  return blocks().find(number_of(address)) == blocks().by_begin.end();
}

void* driver_function_of_memory(const std::string& name) {
  // The driver returns the second version for the plain name.
  if (name == "cuMemGetAddressRange") return reinterpret_cast<void*>(&address_range);
  if (name == "cuPointerGetAttribute") return reinterpret_cast<void*>(&pointer_attribute);
  return nullptr;
}

void* allocate_in_pool(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) return nullptr;
  const std::lock_guard lock(blocks().mutex);
  blocks().by_begin[number_of(memory)].kind = Kind::kPooled;
  return memory;
}

void count_memory(Alive& alive) {
  const std::lock_guard lock(blocks().mutex);
  for (const auto& [begin, block] : blocks().by_begin) {
    if (block.kind == Kind::kDevice || block.kind == Kind::kPooled) ++alive.blocks;
    if (block.kind == Kind::kImported) ++alive.imports;
    if (!is_device(block.kind)) ++alive.pinned;
  }
}

}  // namespace kolo::test::emulated_cuda

using namespace kolo::test::emulated_cuda;  // NOLINT(google-build-using-namespace)

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  if (bytes > gpu->memory - gpu->used) return told(cudaErrorMemoryAllocation);
  const int file = memfd_create("emulated GPU", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0)
    return told(cudaErrorMemoryAllocation);
  void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (begin == MAP_FAILED) {
    close(file);
    return told(cudaErrorMemoryAllocation);
  }
  std::memset(begin, 0xcd, std::min<std::size_t>(bytes, 1 << 20));  // some former content
  gpu->used += bytes;
  note(begin, {bytes, Kind::kDevice, gpu, file});
  *memory = begin;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  if (memory == nullptr) return cudaSuccess;
  wait_for_streams();
  Block block;
  if (!take(memory, {Kind::kDevice, Kind::kPooled}, block)) return told(cudaErrorInvalidValue);
  munmap(memory, block.size);
  static_cast<void>(ftruncate(block.file, 0));  // a process that still maps it faults
  close(block.file);
  block.gpu->used -= block.size;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* all) {
  EMULATED_CUDA_ENTER(gpu);
  *all = gpu->memory;
  *left = gpu->memory - gpu->used;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  void* const begin =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return told(cudaErrorMemoryAllocation);
  note(begin, {bytes, Kind::kAllocatedPinned, gpu, -1});
  *memory = begin;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  wait_for_streams();
  Block block;
  if (!take(memory, {Kind::kAllocatedPinned}, block)) return told(cudaErrorInvalidValue);
  munmap(memory, block.size);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  if (bytes == 0) return told(cudaErrorInvalidValue);
  const std::lock_guard lock(blocks().mutex);
  const auto next = blocks().by_begin.lower_bound(number_of(memory));
  if (blocks().find(number_of(memory)) != blocks().by_begin.end() ||
      (next != blocks().by_begin.end() && next->first < number_of(memory) + bytes))
    return told(cudaErrorHostMemoryAlreadyRegistered);
  blocks().by_begin[number_of(memory)] = {bytes, Kind::kRegistered, gpu, -1};
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* memory) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  wait_for_streams();
  Block block;
  return take(memory, {Kind::kRegistered}, block) ? cudaSuccess
                                                  : told(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  EMULATED_CUDA_ENTER(gpu);
  *attributes = {};
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().find(number_of(address));
  if (found == blocks().by_begin.end()) {
    attributes->type = cudaMemoryTypeUnregistered;
    return cudaSuccess;
  }
  attributes->type = is_device(found->second.kind) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = found->second.gpu->ordinal;
  attributes->devicePointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().by_begin.find(number_of(memory));
  if (found == blocks().by_begin.end() || found->second.kind != Kind::kDevice)
    return told(cudaErrorInvalidValue);
  const Block& block = found->second;
  const Handle inner{kMagic,
                     getpid(),
                     block.file,
                     static_cast<std::uint32_t>(block.gpu->number),
                     inode_of(block.file),
                     block.size};
  *handle = {};
  std::memcpy(handle->reserved, &inner, sizeof(inner));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  if (flags != cudaIpcMemLazyEnablePeerAccess) return told(cudaErrorInvalidValue);
  Handle inner = {};
  std::memcpy(&inner, handle.reserved, sizeof(inner));
  if (inner.magic != kMagic) return told(cudaErrorInvalidValue);
  if (inner.pid == getpid()) return told(cudaErrorDeviceUninitialized);
  if (static_cast<int>(inner.number) != gpu->number && !devices_reach_each_other())
    return told(cudaErrorPeerAccessUnsupported);
  const std::string path =
      "/proc/" + std::to_string(inner.pid) + "/fd/" + std::to_string(inner.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* begin = MAP_FAILED;
  if (file >= 0 && inode_of(file) == inner.inode)
    begin = mmap(nullptr, inner.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (begin == MAP_FAILED) {
    if (file >= 0) close(file);
    return told(cudaErrorMapBufferObjectFailed);
  }
  note(begin, {inner.size, Kind::kImported, gpu, file});
  *memory = begin;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  EMULATED_CUDA_ENTER_UNSAFE(gpu);
  wait_for_streams();
  Block block;
  if (!take(memory, {Kind::kImported}, block)) return told(cudaErrorInvalidValue);
  munmap(memory, block.size);
  close(block.file);
  return cudaSuccess;
}
