#include "runtime/negotiation/ready_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo {
namespace {

using testing::ElementsAre;
using namespace std::chrono_literals;

const ReadySlots::Clock::time_point kNow{100s};

std::vector<std::uint32_t> taken(ReadySlots& ready) {
  std::vector<std::uint32_t> slots;
  ready.take_complete().for_each([&](std::uint32_t slot) { slots.push_back(slot); });
  return slots;
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 63, 64, 65, 200));

TEST_P(Ranks, AreCountedUntilAllAreReady) {
  const int ranks = GetParam();
  ReadySlots ready(ranks);
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(ready.has_complete());
      EXPECT_TRUE(ready.add(rank, 5, kNow));
      const bool last = rank + 1 == ranks;
      EXPECT_EQ(last, !ready.has_partial());
      if (last) continue;
      EXPECT_FALSE(ready.add(rank, 5, kNow)) << "said so already";
    }
    EXPECT_FALSE(ready.has_partial());
    EXPECT_THAT(taken(ready), ElementsAre(5));
    EXPECT_FALSE(ready.has_complete());
  }
}

TEST(ReadySlots, KnowWhoIsReadyAndSinceWhen) {
  ReadySlots ready(70);
  ready.add(69, 3, kNow);
  ready.add(1, 3, kNow + 1s);
  ready.add(2, 7, kNow + 5s);
  EXPECT_THAT(ready.partial(), ElementsAre(3, 7));
  EXPECT_THAT(ready.partial(kNow + 1s), ElementsAre(3));
  const auto partial = ready.take_partial(3);
  ASSERT_TRUE(partial.has_value());
  EXPECT_THAT(partial->ranks, ElementsAre(1, 69));
  EXPECT_EQ(partial->since, kNow);
  EXPECT_FALSE(ready.take_partial(3).has_value());
  EXPECT_FALSE(ready.take_partial(1000).has_value());
  EXPECT_TRUE(ready.has_partial());
  EXPECT_TRUE(ready.add(69, 3, kNow)) << "forgotten";
}

}  // namespace
}  // namespace kolo
