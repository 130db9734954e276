// More elements than an int counts: 2^31 + 4097 bytes in an all-reduce, a broadcast and an
// allgather of two ranks. The results are checked where indices overflow and at the ends. Takes 4.1
// GiB and fails without this memory. Ranks are threads.
#include "tests/support/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace kolo::test {
namespace {

constexpr std::size_t kBorder = std::size_t{1} << 31;
constexpr std::size_t kTotal = kBorder + 4097;
/// Around these offsets every byte is different and is checked.
constexpr std::size_t kPlaces[] = {0, kTotal / 2, kBorder, kTotal};
constexpr std::size_t kAround = 5000;

std::byte byte_at(std::size_t index, int rank) {
  return static_cast<std::byte>((index * 31 + static_cast<std::size_t>(rank) * 7) % 101);
}

template <class Visit>
void visit_places(std::size_t begin, std::size_t end, Visit&& visit) {
  for (const std::size_t place : kPlaces) {
    const std::size_t last = std::min(place + kAround, end);
    for (std::size_t i = std::max(place - std::min(place, kAround), begin); i < last; ++i) visit(i);
  }
}

/// Writes rank `rank`'s bytes at [begin, end) of its memory.
void fill(std::byte* memory, std::size_t begin, std::size_t end, int rank) {
  std::memset(memory + begin, rank + 1, end - begin);
  visit_places(begin, end, [&](std::size_t i) { memory[i] = byte_at(i, rank); });
}

template <class Expected>
void expect_bytes(const std::byte* memory, Expected&& expected) {
  visit_places(0, kTotal, [&](std::size_t i) {
    ASSERT_EQ(memory[i], static_cast<std::byte>(expected(i))) << "element " << i;
  });
}

std::size_t available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string word;
  while (meminfo >> word) {
    std::size_t kibibytes = 0;
    if (word == "MemAvailable:" && meminfo >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

TEST(Large, CountsBeyondAnInt) {
  constexpr std::size_t kNeeded = 2 * kTotal + (std::size_t{1} << 30);
  ASSERT_GE(available_bytes(), kNeeded) << "this test takes 5 GiB; leave it out by ctest -LE large";
  constexpr auto kCount = static_cast<std::int64_t>(kTotal);
  run_local_world(2, [&](int rank, Runtime& runtime) {
    const auto memory = std::make_unique_for_overwrite<std::byte[]>(kTotal);
    std::byte* const data = memory.get();
    Submission whole;
    whole.name = "large";
    whole.signature = {
        .kind = OperationKind::kAllreduce, .type = DataType::kUInt8, .shape = {kCount}};
    whole.input = whole.output = data;

    fill(data, 0, kTotal, rank);
    ASSERT_DONE(submit(runtime, whole));
    ASSERT_NO_FATAL_FAILURE(expect_bytes(data, [](std::size_t i) {
      return std::to_integer<int>(byte_at(i, 0)) + std::to_integer<int>(byte_at(i, 1));
    })) << "allreduce";
    EXPECT_EQ(data[kTotal / 4], std::byte{3});

    fill(data, 0, kTotal, rank);
    whole.signature.kind = OperationKind::kBroadcast;
    whole.signature.root = 1;
    ASSERT_DONE(submit(runtime, whole));
    ASSERT_NO_FATAL_FAILURE(expect_bytes(data, [](std::size_t i) { return byte_at(i, 1); }))
        << "broadcast";
    EXPECT_EQ(data[kTotal / 4], std::byte{2});

    // Rank 0 has one element less; each rank's part is at its own offset.
    const std::size_t border = kTotal / 2;
    const std::size_t begin = rank == 0 ? 0 : border;
    const std::size_t end = rank == 0 ? border : kTotal;
    std::memset(data, 0, kTotal);
    fill(data, begin, end, rank);
    Submission part;
    part.name = "large parts";
    part.signature = {.kind = OperationKind::kAllgather,
                      .type = DataType::kUInt8,
                      .shape = {static_cast<std::int64_t>(end - begin)}};
    part.input = data + begin;
    part.output = data;
    ASSERT_DONE(submit(runtime, part));
    ASSERT_NO_FATAL_FAILURE(expect_bytes(data, [&](std::size_t i) {
      return byte_at(i, i < border ? 0 : 1);
    })) << "allgather";
    EXPECT_EQ(data[kTotal / 4], std::byte{1});
    EXPECT_EQ(data[kTotal / 4 * 3], std::byte{2});
  });
}

}  // namespace
}  // namespace kolo::test
