// The arena's size classes, reuse, alignment and accounting.
#include "runtime/memory/arena.h"

#include "tests/support/manual_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace kolo::test {
namespace {

class Region final : public MemoryRegion {
 public:
  explicit Region(std::size_t bytes) : memory_(bytes) {}
  std::span<std::byte> bytes() const override { return memory_; }
  std::string key() const override { return "key"; }

 private:
  mutable std::vector<std::byte> memory_;
};

/// Can map `budget` bytes in all.
class MappingTransport : public ManualTransport {
 public:
  Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) override {
    if (bytes > budget) return KOLO_ERROR(kOutOfMemory, "no {} bytes of shared memory", bytes);
    budget -= bytes;
    return std::unique_ptr<MemoryRegion>(std::make_unique<Region>(bytes));
  }
  std::size_t budget = 1 << 20;
};

ArenaBlock take(Arena& arena, std::size_t bytes, MemoryKind kind = MemoryKind::kHeap) {
  auto block = arena.allocate(bytes, kind);
  EXPECT_TRUE(block.ok()) << block.error().message;
  return *std::move(block);
}

TEST(Arena, RoundsUpToAPowerOfTwoOfPages) {
  ManualTransport transport;
  Arena arena(transport);
  const ArenaBlock none = take(arena, 0), small = take(arena, 4096), larger = take(arena, 4097),
                   huge = take(arena, (2 << 20) + 1);
  EXPECT_EQ(none.size(), 4096u);
  EXPECT_EQ(small.size(), 4096u);
  EXPECT_EQ(larger.size(), 8192u);
  EXPECT_EQ(huge.size(), 4u << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.data()) % 4096, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(huge.data()) % (2 << 20), 0u);
  EXPECT_EQ(arena.bytes_held(), 4096u + 4096 + 8192 + (4 << 20));
  std::memset(huge.data(), 1, huge.size());
}

TEST(Arena, UsesReturnedBlocksAgainWithinTheirClass) {
  ManualTransport transport;
  Arena arena(transport);
  std::byte* first = nullptr;
  {
    const ArenaBlock block = take(arena, 5000);
    first = block.data();
  }
  EXPECT_EQ(arena.bytes_held(), 8192u);
  const ArenaBlock other_class = take(arena, 9000);
  const ArenaBlock again = take(arena, 8000);
  const ArenaBlock second = take(arena, 8000);
  EXPECT_EQ(again.data(), first);
  EXPECT_NE(second.data(), first);
  EXPECT_EQ(arena.bytes_held(), 8192u + 8192 + 16384);
}

TEST(Arena, AMovedBlockReturnsOnce) {
  ManualTransport transport;
  Arena arena(transport);
  ArenaBlock a = take(arena, 100);
  ArenaBlock b = std::move(a);
  a = take(arena, 100);
  std::byte* const of_a = a.data();
  b = std::move(a);  // returns b's block
  EXPECT_EQ(b.data(), of_a);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.size(), 0u);
  a = {};
  const ArenaBlock c = take(arena, 100);
  EXPECT_NE(c.data(), of_a);
  EXPECT_EQ(arena.bytes_held(), 2u * 4096);
}

TEST(Arena, MappableBlocksCarryTheirRegion) {
  MappingTransport transport;
  Arena arena(transport);
  const ArenaBlock heap = take(arena, 100);
  const ArenaBlock mapped = take(arena, 100, MemoryKind::kMappable);
  EXPECT_EQ(heap.region(), nullptr);
  ASSERT_NE(mapped.region(), nullptr);
  EXPECT_EQ(mapped.region()->key(), "key");
  EXPECT_EQ(mapped.data(), mapped.region()->bytes().data());
}

TEST(Arena, DropsKeptBlocksBeforeItGivesUp) {
  class Returning final : public MappingTransport {
   public:
    Result<std::unique_ptr<MemoryRegion>> allocate_mappable(std::size_t bytes) override {
      auto region = MappingTransport::allocate_mappable(bytes);
      if (!region.ok()) budget += 1 << 20;  // as if the kept blocks had been all there was
      return region;
    }
  } transport;
  Arena arena(transport);
  take(arena, 1 << 20, MemoryKind::kMappable);
  EXPECT_EQ(arena.bytes_held(), 1u << 20);
  const ArenaBlock block = take(arena, 1 << 19, MemoryKind::kMappable);
  EXPECT_EQ(arena.bytes_held(), 1u << 19) << "the kept block is gone";
}

TEST(Arena, GivesLargePlainMemoryBackThatNothingUses) {
  MappingTransport transport;
  Arena arena(transport);
  const auto start = Arena::Clock::now();
  take(arena, 4096);
  take(arena, 4 << 20);
  take(arena, 1 << 20, MemoryKind::kMappable);
  const ArenaBlock used = take(arena, 8 << 20);
  const std::size_t kept = (4 << 20) + (1 << 20) + 4096 + (8 << 20);
  arena.drop_unused(start + Arena::kKeep / 2);
  EXPECT_EQ(arena.bytes_held(), kept);
  arena.drop_unused(Arena::Clock::now() + Arena::kKeep);
  EXPECT_EQ(arena.bytes_held(), kept - (4 << 20));
}

TEST(Arena, WhatItGivesBackTheSystemHas) {
  // From here on malloc() keeps freed blocks of this size.
  void* volatile large = std::malloc(30 << 20);  // no compiler optimises this away
  std::free(large);
  ManualTransport transport;
  Arena arena(transport);
  std::byte* memory = nullptr;
  std::unique_ptr<void, decltype(&std::free)> behind(nullptr, &std::free);
  {
    const ArenaBlock block = take(arena, 8 << 20);
    behind.reset(std::malloc(8 << 20));
    memory = block.data();
    std::memset(memory, 1, block.size());
  }
  arena.drop_unused(Arena::Clock::now() + Arena::kKeep);
  unsigned char resident = 0;
  EXPECT_EQ(mincore(memory, 4096, &resident), -1);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(Arena, NamesTheSizeItCannotHave) {
  MappingTransport transport;
  Arena arena(transport);
  const auto mapped = arena.allocate(2 << 20, MemoryKind::kMappable);
  ASSERT_FALSE(mapped.ok());
  EXPECT_EQ(mapped.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(mapped.error().message, ::testing::HasSubstr("2097152"));
  EXPECT_EQ(arena.allocate(SIZE_MAX, MemoryKind::kHeap).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(arena.bytes_held(), 0u);
}

}  // namespace
}  // namespace kolo::test
