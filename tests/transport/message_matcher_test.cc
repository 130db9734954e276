// The matcher against a plain map of queues, while it grows and reuses memory.
#include "transport/message_matcher.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <tuple>

namespace kolo::test {
namespace {

TEST(FifoTableTest, KeepsTheOrderUnderEachKey) {
  using Parts = std::tuple<int, std::uint32_t, std::uint32_t, std::uint64_t>;
  FifoTable<int> table;
  std::map<Parts, std::deque<int>> expected;
  std::minstd_rand random(7);
  std::size_t size = 0;
  for (int i = 0; i < 20'000; ++i) {
    // Grows for the first half and then shrinks; few keys, so that many values share one.
    const auto number = [&random](std::uint32_t below) {
      return static_cast<std::uint32_t>(random() >> 8) % below;
    };
    const MessageKey key{
        .peer = static_cast<int>(number(4)),
        .tag = {.communicator = number(2), .step = number(6), .operation = number(5)}};
    std::deque<int>& queue =
        expected[{key.peer, key.tag.communicator, key.tag.step, key.tag.operation}];
    if (number(10) < (i < 10'000 ? 7U : 3U)) {
      table.push(key, i);
      queue.push_back(i);
      ++size;
    } else {
      const std::optional<int> value = table.pop(key);
      ASSERT_EQ(value.has_value(), !queue.empty()) << i;
      if (value) {
        EXPECT_EQ(*value, queue.front()) << i;
        queue.pop_front();
        --size;
      }
    }
    ASSERT_EQ(table.size(), size);
  }
  EXPECT_EQ(table.take_all().size(), size);
  EXPECT_EQ(table.size(), 0U);
  table.push({.peer = 1, .tag = {}}, 5);
  EXPECT_EQ(table.pop({.peer = 1, .tag = {}}), 5);
  EXPECT_EQ(table.pop({.peer = 1, .tag = {}}), std::nullopt);
}

TEST(FifoTableTest, ConsecutiveStepsSpread) {
  std::map<std::uint64_t, int> buckets;
  for (std::uint64_t operation = 0; operation < 16; ++operation) {
    for (std::uint32_t step = 0; step < 64; ++step) {
      const Tag tag{.communicator = 1, .step = step, .operation = operation};
      ++buckets[hash_of({.peer = 0, .tag = tag}) % 1024];
    }
  }
  for (const auto& [bucket, count] : buckets) EXPECT_LE(count, 10);
}

}  // namespace
}  // namespace kolo::test
