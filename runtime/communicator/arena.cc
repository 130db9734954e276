// Arena: size classes of powers of two, each with its kept blocks. Called by the fusion stage and
// the executors' owners, on the thread that holds the progress token.
#include "runtime/communicator/arena.h"

#include "runtime/base/check.h"
#include "runtime/communicator/device_window.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = 2 << 20;

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

}  // namespace

struct ArenaBlock::Memory {
  Arena::Clock::time_point given_back;
  MemoryKind kind = MemoryKind::kHeap;
  std::span<std::byte> bytes;
  std::unique_ptr<std::byte, Free> heap;  ///< for kHeap
  std::unique_ptr<DeviceMemory> device;   ///< for kDevice, kPinned and kNetworked
  std::unique_ptr<MemoryRegion> region;   ///< for kMappable and kNetworked; ends before its memory
};

namespace {

Result<std::unique_ptr<ArenaBlock::Memory>> make_memory(Transport& transport,
                                                        const DeviceWindow* devices,
                                                        std::size_t bytes, MemoryKind kind) {
  auto memory = std::make_unique<ArenaBlock::Memory>();
  memory->kind = kind;
  switch (kind) {
    case MemoryKind::kHeap: {
      const bool huge = bytes >= kHugePage;
      void* const heap = std::aligned_alloc(huge ? kHugePage : kPage, bytes);
      if (heap == nullptr)
        return KOLO_ERROR(kOutOfMemory, "no {} bytes of host memory for a buffer", bytes);
      // Only advice: without huge pages everything works, with more page faults.
      if (huge) (void)madvise(heap, bytes, MADV_HUGEPAGE);
      memory->heap.reset(static_cast<std::byte*>(heap));
      memory->bytes = {memory->heap.get(), bytes};
      break;
    }
    case MemoryKind::kMappable: {
      KOLO_ASSIGN(memory->region, transport.allocate_mappable(bytes));
      memory->bytes = memory->region->bytes();
      break;
    }
    case MemoryKind::kDevice:
    case MemoryKind::kNetworked:
    case MemoryKind::kPinned: {
      Accelerator* const accelerator = devices == nullptr ? nullptr : devices->accelerator();
      if (accelerator == nullptr)
        return KOLO_ERROR(kUnsupported, "there is no accelerator whose memory a buffer could be");
      KOLO_ASSIGN(memory->device, kind == MemoryKind::kPinned ? accelerator->allocate_pinned(bytes)
                                                              : accelerator->allocate(bytes));
      memory->bytes = memory->device->bytes();
      if (kind != MemoryKind::kNetworked) break;
      Status registered;
      accelerator->use_for([&] {
        auto region = transport.register_memory(memory->bytes, MemoryType::kCuda);
        if (!region.ok()) {
          registered = KOLO_ERROR(kUnsupported,
                                  "{} bytes of the device for the network cards: {}; "
                                  "KOLO_GPUDIRECT=off does without",
                                  bytes, region.error().message);
        } else {
          memory->region = *std::move(region);
        }
      });
      KOLO_TRY(registered);
      break;
    }
  }
  return memory;
}

}  // namespace

ArenaBlock::ArenaBlock() = default;
ArenaBlock::ArenaBlock(Arena& arena, std::unique_ptr<Memory> memory)
    : arena_(&arena), memory_(std::move(memory)) {}

ArenaBlock::ArenaBlock(ArenaBlock&& other) noexcept = default;

ArenaBlock& ArenaBlock::operator=(ArenaBlock&& other) noexcept {
  if (this != &other) {
    if (memory_ != nullptr) arena_->give_back(std::move(memory_));
    arena_ = other.arena_;
    memory_ = std::move(other.memory_);
  }
  return *this;
}

ArenaBlock::~ArenaBlock() {
  if (memory_ != nullptr) arena_->give_back(std::move(memory_));
}

std::byte* ArenaBlock::data() const { return memory_ == nullptr ? nullptr : memory_->bytes.data(); }
std::size_t ArenaBlock::size() const { return memory_ == nullptr ? 0 : memory_->bytes.size(); }
MemoryRegion* ArenaBlock::region() const {
  return memory_ == nullptr ? nullptr : memory_->region.get();
}

Arena::Arena(Transport& transport, const DeviceWindow* devices)
    : transport_(transport), devices_(devices) {}
Arena::~Arena() = default;

Result<ArenaBlock> Arena::allocate(std::size_t bytes, MemoryKind kind) {
  if (bytes > std::size_t{1} << 62)
    return KOLO_ERROR(kOutOfMemory, "a buffer of {} bytes is beyond any memory", bytes);
  const std::size_t size = std::bit_ceil(std::max(bytes, kPage));
  auto& kept = kept_[{kind, size}];
  if (!kept.empty()) {
    auto memory = std::move(kept.back());
    kept.pop_back();
    return ArenaBlock(*this, std::move(memory));
  }
  auto memory = make_memory(transport_, devices_, size, kind);
  if (!memory.ok() && memory.error().code == ErrorCode::kOutOfMemory) {
    drop_kept();
    memory = make_memory(transport_, devices_, size, kind);
  }
  if (!memory.ok()) return std::move(memory).error();
  bytes_held_ += (*memory)->bytes.size();
  return ArenaBlock(*this, *std::move(memory));
}

void Arena::drop_kept() {
  for (auto& [size_class, blocks] : kept_) {
    for (const auto& memory : blocks) bytes_held_ -= memory->bytes.size();
    blocks.clear();
  }
}

void Arena::drop_unused(Clock::time_point now) {
  for (auto& [size_class, blocks] : kept_) {
    const auto& [kind, size] = size_class;
    // Memory of the device is not: freeing it would wait for the device.
    if (kind != MemoryKind::kHeap || size < kLarge) continue;
    const auto is_unused = [&](const auto& memory) { return now - memory->given_back >= kKeep; };
    bytes_held_ -= size * std::erase_if(blocks, is_unused);
  }
}

void Arena::give_back(std::unique_ptr<ArenaBlock::Memory> memory) {
  memory->given_back = Clock::now();
  kept_[{memory->kind, std::bit_floor(memory->bytes.size())}].push_back(std::move(memory));
}

}  // namespace kolo
