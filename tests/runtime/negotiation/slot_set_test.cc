#include "runtime/negotiation/slot_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace kolo {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::uint32_t> members(const SlotSet& set) {
  std::vector<std::uint32_t> slots;
  set.for_each([&](std::uint32_t slot) { slots.push_back(slot); });
  return slots;
}

TEST(SlotSet, SurvivesTheWire) {
  std::mt19937 engine(7);
  const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 200; ++round) {
    const std::uint32_t slots = 1 + random() % 300;
    std::set<std::uint32_t> expected;
    SlotSet set;
    for (std::uint32_t i = random() % 40; i > 0; --i) {
      const std::uint32_t slot = random() % slots;
      set.insert(slot);
      expected.insert(slot);
    }
    std::string wire;
    set.encode(wire);
    SlotSet decoded;
    ASSERT_TRUE(SlotSet::decode(bytes_of(wire), slots, decoded));
    EXPECT_EQ(members(decoded), std::vector<std::uint32_t>(expected.begin(), expected.end()));
  }
}

TEST(SlotSet, SkipsEmptyWords) {
  SlotSet set;
  set.insert(4000);
  std::string wire;
  set.encode(wire);
  EXPECT_EQ(wire.size(), sizeof(std::uint32_t) + sizeof(std::uint64_t));
}

TEST(SlotSet, RefusesGarbage) {
  SlotSet set;
  EXPECT_FALSE(SlotSet::decode(bytes_of("abc"), 100, set)) << "shorter than its header";
  EXPECT_FALSE(SlotSet::decode(bytes_of("abcde"), 100, set)) << "not whole words";
  SlotSet beyond;
  beyond.insert(70);
  std::string wire;
  beyond.encode(wire);
  EXPECT_FALSE(SlotSet::decode(bytes_of(wire), 64, set)) << "a word too many";
  EXPECT_FALSE(SlotSet::decode(bytes_of(wire), 70, set)) << "slot 70 of 70";
  EXPECT_TRUE(SlotSet::decode(bytes_of(wire), 71, set));
}

TEST(SlotsBySteps, SurviveTheWire) {
  SlotsBySteps all;
  for (const std::uint32_t slot : {3U, 90U}) insert(all, 7, slot);
  insert(all, 0, 5);
  insert(all, 7, 4);
  const std::string wire = encode(all);
  SlotsBySteps decoded;
  ASSERT_TRUE(decode(bytes_of(wire), 91, decoded));
  ASSERT_EQ(decoded.size(), 2U);
  EXPECT_EQ(decoded[0].step, 7U);
  EXPECT_EQ(members(decoded[0].slots), (std::vector<std::uint32_t>{3, 4, 90}));
  EXPECT_EQ(decoded[1].step, 0U);
  EXPECT_EQ(members(decoded[1].slots), std::vector<std::uint32_t>{5});
  for (std::size_t bytes = 1; bytes < wire.size(); ++bytes) {
    SlotsBySteps part;
    const bool is_whole = bytes == encode({all[0]}).size();
    EXPECT_EQ(decode(bytes_of(wire).first(bytes), 91, part), is_whole) << bytes;
  }
  SlotsBySteps beyond;
  EXPECT_FALSE(decode(bytes_of(wire), 90, beyond)) << "slot 90 of 90";
}

TEST(SlotsByRank, SurviveTheWire) {
  SlotsByRank all;
  insert(all[3], 7, 90);
  insert(all[70000], 7, 5);
  insert(all[70000], 8, 6);
  const std::string wire = encode(all);
  SlotsByRank decoded;
  ASSERT_TRUE(decode(bytes_of(wire), 91, decoded));
  EXPECT_EQ(encode(decoded), wire);
  ASSERT_EQ(decoded.size(), 2U);
  EXPECT_EQ(decoded[70000].size(), 2U);
  const std::size_t first = encode(SlotsByRank{{3, all[3]}}).size();
  for (std::size_t bytes = 1; bytes < wire.size(); ++bytes) {
    SlotsByRank part;
    EXPECT_EQ(decode(bytes_of(wire).first(bytes), 91, part), bytes == first) << bytes;
  }
  SlotsByRank beyond;
  EXPECT_FALSE(decode(bytes_of(wire), 90, beyond)) << "slot 90 of 90";
}

}  // namespace
}  // namespace kolo
