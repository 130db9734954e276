// SharedArena: allocation, release and exhaustion.
#include "runtime/memory/shared_arena.h"

#include "runtime/memory/shared_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBegin = 3 * kPage;

std::shared_ptr<SharedArena> arena_of(std::size_t pages) {
  auto region = reserve_shared_region(kBegin + pages * kPage);
  EXPECT_TRUE(region.ok()) << region.error().message;
  return std::make_shared<SharedArena>(*std::move(region), kBegin);
}

std::shared_ptr<std::byte> allocate(SharedArena& arena, std::size_t bytes) {
  auto memory = arena.allocate(bytes);
  EXPECT_TRUE(memory.ok()) << memory.error().message;
  return memory.ok() ? *std::move(memory) : nullptr;
}

bool is_zero(const std::byte* data, std::size_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte value) { return value == std::byte{0}; });
}

TEST(SharedArena, MemoryIsZeroedAlignedAndApart) {
  const auto arena = arena_of(100);
  std::vector<std::shared_ptr<std::byte>> blocks;
  for (const std::size_t bytes : {0UL, 1UL, kPage, kPage + 1, 10 * kPage}) {
    blocks.push_back(allocate(*arena, bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().get()) % kPage, 0U);
    EXPECT_TRUE(is_zero(blocks.back().get(), bytes));
    std::memset(blocks.back().get(), static_cast<int>(blocks.size()), bytes);
  }
  EXPECT_EQ(blocks[1].get()[0], std::byte{2});
  EXPECT_EQ(blocks[4].get()[10 * kPage - 1], std::byte{5});
  EXPECT_EQ(arena->bytes_used(), (1 + 1 + 1 + 2 + 10) * kPage);
}

TEST(SharedArena, FreedMemoryComesBackZeroed) {
  const auto arena = arena_of(4);
  for (int round = 0; round < 3; ++round) {
    const auto block = allocate(*arena, 4 * kPage);
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_zero(block.get(), 4 * kPage));
    std::memset(block.get(), 0xff, 4 * kPage);
  }
  EXPECT_EQ(arena->bytes_used(), 0U);
}

TEST(SharedArena, NeighboursJoinAgainInAnyOrder) {
  const auto arena = arena_of(64);
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<std::byte>> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(allocate(*arena, (1 + random() % 4) * kPage));
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.clear();
    EXPECT_NE(allocate(*arena, 64 * kPage), nullptr) << "all of it in one piece";
  }
}

TEST(SharedArena, WhatIsTooMuchIsAnErrorThatSaysSo) {
  const auto arena = arena_of(4);
  const auto half = allocate(*arena, 2 * kPage);
  for (const std::size_t bytes : {3 * kPage, SIZE_MAX, SIZE_MAX - kPage}) {
    const auto memory = arena->allocate(bytes);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(memory.error().message, testing::HasSubstr("8192 of the 16384 of KOLO_ARENA"));
  }
  EXPECT_NE(allocate(*arena, 2 * kPage), nullptr);
}

TEST(SharedArena, MoreThanTheHostHasIsRefusedBeforeItIsTouched) {
  auto region = reserve_shared_region(std::size_t{1} << 44);
  if (!region.ok()) return;  // the host grants no such address space either
  const auto arena = std::make_shared<SharedArena>(*std::move(region), kBegin);
  const auto memory = arena->allocate(std::size_t{1} << 43);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(arena->bytes_used(), 0U);
}

TEST(SharedArena, KnowsItsOwnMemory) {
  const auto arena = arena_of(8);
  const auto block = allocate(*arena, 2 * kPage);
  EXPECT_EQ(arena->offset_of(block.get(), 2 * kPage), kBegin);
  EXPECT_EQ(arena->offset_of(block.get() + 5, 8), kBegin + 5);
  EXPECT_EQ(arena->offset_of(block.get(), 9 * kPage), std::nullopt) << "beyond its end";
  EXPECT_EQ(arena->offset_of(block.get() - 1, 8), std::nullopt) << "before its begin";
  std::byte elsewhere{};
  EXPECT_EQ(arena->offset_of(&elsewhere, 1), std::nullopt);
}

TEST(SharedArena, MemoryOutlivesTheArena) {
  auto arena = arena_of(2);
  const auto block = allocate(*arena, kPage);
  arena.reset();
  std::memset(block.get(), 1, kPage);
}

TEST(SharedArena, ThreadsMayAllocateAtOnce) {
  const auto arena = arena_of(4000);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      std::vector<std::shared_ptr<std::byte>> blocks;
      for (int i = 0; i < 200; ++i) {
        blocks.push_back(allocate(*arena, static_cast<std::size_t>(i % 5 + 1) * kPage));
        *blocks.back() = static_cast<std::byte>(thread);
        if (i % 3 == 0) blocks.erase(blocks.begin());
      }
      for (const auto& block : blocks) EXPECT_EQ(*block, static_cast<std::byte>(thread));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena->bytes_used(), 0U);
}

}  // namespace
}  // namespace kolo::test
