// Size classes are powers of two. Each class keeps its returned blocks. The fusion stage and the
// executors' owners call the arena, on the thread that holds the progress token.
#include "runtime/memory/arena.h"

#include "runtime/base/check.h"
#include "runtime/base/page.h"
#include "runtime/memory/device_window.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

namespace kolo {
namespace {
constexpr std::size_t kHugePage = 2 << 20;
}  // namespace

/// Plain memory. Large blocks are mapped from the system, so that they go back to the system at
/// once when they are dropped; malloc() may keep freed memory.
class HeapMemory {
 public:
  HeapMemory() = default;
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;
  ~HeapMemory() {
    if (is_mapped_) {
      munmap(bytes_.data(), bytes_.size());
    } else {
      std::free(bytes_.data());
    }
  }

  /// `bytes`: a power of two, at least a page. Aligned to a page, or to a huge page from the size
  /// of one on. Empty if there is no memory.
  std::span<std::byte> allocate(std::size_t bytes) {
    is_mapped_ = bytes >= Arena::kLarge;
    void* const memory = is_mapped_ ? map(bytes) : std::aligned_alloc(kPage, bytes);
    if (memory != nullptr) bytes_ = {static_cast<std::byte*>(memory), bytes};
    return bytes_;
  }

 private:
  static void* map(std::size_t bytes) {
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
    const std::size_t spare = alignment - kPage;
    void* const mapped =
        mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(mapped);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(mapped) % alignment;
    if (before > 0) munmap(begin, before);
    if (spare > before) munmap(begin + before + bytes, spare - before);
    // Only advice: without huge pages there are just more page faults.
    if (bytes >= kHugePage) (void)madvise(begin + before, bytes, MADV_HUGEPAGE);
    return begin + before;
  }

  std::span<std::byte> bytes_;
  bool is_mapped_ = false;
};

struct ArenaBlock::Memory {
  Arena::Clock::time_point given_back;
  MemoryKind kind = MemoryKind::kHeap;
  std::span<std::byte> bytes;
  HeapMemory heap;                       ///< for kHeap
  std::unique_ptr<DeviceMemory> device;  ///< for kDevice, kPinned and kNetworked
  std::unique_ptr<MemoryRegion> region;  ///< for kMappable and kNetworked; ends before its memory
};

namespace {

Status make_device_memory(Transport& transport, const DeviceWindow* devices, std::size_t bytes,
                          ArenaBlock::Memory& memory) {
  Accelerator* const accelerator = devices == nullptr ? nullptr : devices->accelerator();
  if (accelerator == nullptr)
    return KOLO_ERROR(kUnsupported, "there is no accelerator whose memory a buffer could be");
  KOLO_ASSIGN(memory.device, memory.kind == MemoryKind::kPinned
                                 ? accelerator->allocate_pinned(bytes)
                                 : accelerator->allocate(bytes));
  memory.bytes = memory.device->bytes();
  if (memory.kind != MemoryKind::kNetworked) return {};
  Status registered;
  accelerator->use_for([&] {
    auto region = transport.register_memory(memory.bytes, MemoryType::kCuda);
    if (!region.ok()) {
      registered = KOLO_ERROR(kUnsupported,
                              "{} bytes of the device for the network cards: {}; "
                              "KOLO_GPUDIRECT=off does without",
                              bytes, region.error().message);
    } else {
      memory.region = *std::move(region);
    }
  });
  return registered;
}

Result<std::unique_ptr<ArenaBlock::Memory>> make_memory(Transport& transport,
                                                        const DeviceWindow* devices,
                                                        std::size_t bytes, MemoryKind kind) {
  auto memory = std::make_unique<ArenaBlock::Memory>();
  memory->kind = kind;
  switch (kind) {
    case MemoryKind::kHeap:
      memory->bytes = memory->heap.allocate(bytes);
      if (memory->bytes.empty())
        return KOLO_ERROR(kOutOfMemory, "no {} bytes of host memory for a buffer", bytes);
      break;
    case MemoryKind::kMappable: {
      KOLO_ASSIGN(memory->region, transport.allocate_mappable(bytes));
      memory->bytes = memory->region->bytes();
      break;
    }
    case MemoryKind::kDevice:
    case MemoryKind::kNetworked:
    case MemoryKind::kPinned:
      KOLO_TRY(make_device_memory(transport, devices, bytes, *memory));
      break;
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
    // Device and pinned memory stays, since freeing it would wait for the device.
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
