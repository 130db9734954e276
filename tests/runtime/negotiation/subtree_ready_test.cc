#include "runtime/negotiation/subtree_ready.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace kolo::subtree_ready_test {
namespace {

using testing::IsEmpty;
using namespace std::chrono_literals;

const SubtreeReady::Clock::time_point kNow{100s};
constexpr auto kAll = SubtreeReady::Clock::time_point::max();

std::string text_of(const SlotsBySteps& all) {
  std::string text;
  for (const auto& [step, slots] : all) {
    if (step != 0) text += "step " + std::to_string(step) + ": ";
    slots.for_each([&](std::uint32_t slot) { text += std::to_string(slot) + " "; });
  }
  return text;
}

/// "all: 3 5 rank 2: 7 ".
std::string taken(SubtreeReady& below) {
  const SubtreeReady::PassedOn ready = below.take();
  std::string text;
  if (!ready.by_all.empty()) text += "all: " + text_of(ready.by_all);
  for (const auto& [place, slots] : ready.by_place)
    text += "rank " + std::to_string(place) + ": " + text_of(slots);
  return text;
}

TEST(SubtreeReady, PassesOnAsOneWhatAllRanksHave) {
  SubtreeReady below(70);
  for (int round = 0; round < 3; ++round) {
    below.add({0}, 5, 7, kNow);
    below.add({0}, 6, 7, kNow);
    below.add({1, 33}, 5, 7, kNow);
    EXPECT_FALSE(below.has_passed_on());
    below.add({34, 36}, 5, 7, kNow);
    EXPECT_TRUE(below.has_passed_on());
    EXPECT_EQ(taken(below), "all: step 7: 5 ");
    EXPECT_FALSE(below.has_passed_on());
    below.add({1, 69}, 6, 7, kNow);
    EXPECT_EQ(taken(below), "all: step 7: 6 ");
    EXPECT_FALSE(below.held_since().has_value());
  }
}

TEST(SubtreeReady, PassesOnByRankWhatHasWaited) {
  SubtreeReady below(3);
  below.add({0}, 5, 0, kNow);
  below.add({2}, 6, 0, kNow + 1s);
  EXPECT_EQ(below.held_since(), kNow);
  below.pass_on(kNow - 1s);
  EXPECT_THAT(taken(below), IsEmpty());
  below.pass_on(kNow);
  EXPECT_EQ(taken(below), "rank 0: 5 ");
  EXPECT_EQ(below.held_since(), kNow + 1s);
  below.pass_on(kAll);
  EXPECT_EQ(taken(below), "rank 2: 6 ");
  EXPECT_FALSE(below.held_since().has_value());
  below.pass_on(kAll);
  EXPECT_THAT(taken(below), IsEmpty()) << "once";
}

TEST(SubtreeReady, HoldsNothingOnceTheLastRankIsThere) {
  SubtreeReady below(3);
  below.add({0}, 5, 0, kNow);
  below.pass_on(kAll);
  EXPECT_EQ(taken(below), "rank 0: 5 ");
  below.add({1}, 5, 0, kNow);
  EXPECT_THAT(taken(below), IsEmpty());
  below.add({2}, 5, 0, kNow);
  EXPECT_EQ(taken(below), "rank 1: 5 rank 2: 5 ");
  below.add({0, 3}, 5, 0, kNow);
  EXPECT_EQ(taken(below), "all: 5 ") << "the next call is put together again";
}

TEST(SubtreeReady, BeginsAnewWhereACallIsDecidedWithoutSomeRanks) {
  SubtreeReady below(3);
  below.add({0, 2}, 5, 0, kNow);
  below.pass_on(kAll);
  EXPECT_EQ(taken(below), "rank 0: 5 rank 1: 5 ");
  below.settle(5);
  below.add({2}, 5, 0, kNow);
  EXPECT_THAT(taken(below), IsEmpty()) << "of the next call";
  below.add({0, 2}, 5, 0, kNow);
  EXPECT_EQ(taken(below), "all: 5 ");
  below.settle(1000);
}

TEST(SubtreeReady, KeepsWhatItHoldsWhenACallIsDecided) {
  SubtreeReady below(2);
  below.add({0}, 5, 0, kNow);
  below.settle(5);
  EXPECT_TRUE(below.held_since().has_value());
  below.add({1}, 5, 0, kNow);
  EXPECT_EQ(taken(below), "all: 5 ");
}

TEST(SubtreeReady, MayHearOfTheNextCallBeforeTheDecision) {
  SubtreeReady below(3);
  below.add({0, 2}, 5, 0, kNow);
  below.pass_on(kAll);
  EXPECT_EQ(taken(below), "rank 0: 5 rank 1: 5 ");
  below.add({1}, 5, 0, kNow);  // it has heard that the others have given up
  below.settle(5);
  below.add({2}, 5, 0, kNow);
  below.add({0}, 5, 0, kNow);
  EXPECT_EQ(taken(below), "all: 5 ");
}

TEST(SubtreeReady, PutsNoDifferentStepsTogether) {
  SubtreeReady below(3);
  below.add({0}, 5, 7, kNow);
  below.add({1}, 5, 8, kNow);
  below.add({2}, 5, 7, kNow);
  EXPECT_EQ(taken(below), "rank 0: step 7: 5 rank 1: step 8: 5 rank 2: step 7: 5 ");
}

}  // namespace
}  // namespace kolo::subtree_ready_test
