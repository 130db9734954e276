#include "runtime/negotiation/ready_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo::ready_slots_test {
namespace {

using testing::ElementsAre;
using namespace std::chrono_literals;

using Added = ReadySlots::Added;
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
      EXPECT_EQ(ready.add({rank}, 5, 7, kNow), Added::kYes);
      const bool last = rank + 1 == ranks;
      EXPECT_EQ(last, !ready.has_partial());
      if (last) continue;
      EXPECT_EQ(ready.add({rank}, 5, 7, kNow), Added::kTwice);
    }
    EXPECT_FALSE(ready.has_partial());
    EXPECT_THAT(taken(ready), ElementsAre(5));
    EXPECT_FALSE(ready.has_complete());
  }
}

TEST(ReadySlots, KnowWhoIsReadyAndSinceWhen) {
  ReadySlots ready(70);
  ready.add({69}, 3, 0, kNow);
  ready.add({1}, 3, 0, kNow + 1s);
  ready.add({2}, 7, 0, kNow + 5s);
  EXPECT_THAT(ready.partial(), ElementsAre(3, 7));
  EXPECT_THAT(ready.partial(kNow + 1s), ElementsAre(3));
  const auto partial = ready.take_partial(3);
  ASSERT_TRUE(partial.has_value());
  EXPECT_THAT(partial->places, ElementsAre(1, 69));
  EXPECT_EQ(partial->since, kNow);
  EXPECT_FALSE(ready.take_partial(3).has_value());
  EXPECT_FALSE(ready.take_partial(1000).has_value());
  EXPECT_TRUE(ready.has_partial());
  EXPECT_EQ(ready.add({69}, 3, 0, kNow), Added::kYes) << "forgotten";
}

TEST(ReadySlots, CountRanksOfOneStepAlone) {
  ReadySlots ready(3);
  EXPECT_EQ(ready.add({0}, 3, 0, kNow), Added::kYes) << "tells none";
  EXPECT_EQ(ready.add({2}, 3, 8, kNow), Added::kYes);
  EXPECT_EQ(ready.add({1}, 3, 7, kNow), Added::kOtherStep);
  const auto partial = ready.take_partial(3);
  ASSERT_TRUE(partial.has_value());
  EXPECT_THAT(partial->places, ElementsAre(0, 2));
  EXPECT_EQ(partial->step, 8U);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ready.add({rank}, 3, 9, kNow), Added::kYes);
  EXPECT_THAT(taken(ready), ElementsAre(3)) << "another step has nothing to do with the last one";
}

}  // namespace
}  // namespace kolo::ready_slots_test
