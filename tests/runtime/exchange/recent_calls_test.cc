#include "runtime/exchange/recent_calls.h"

#include <gtest/gtest.h>

namespace kolo::test {
namespace {

TEST(RecentCalls, AnOlderOneThatEndsLaterLeavesItsPlaceToTheNewer) {
  RecentCalls calls;
  calls.add(70, kRefusedCall);
  calls.add(6, 1);
  EXPECT_EQ(calls.find(70), kRefusedCall);
  EXPECT_FALSE(calls.find(6).has_value());
}

TEST(RecentCalls, SaysWhichFailedAtOnce) {
  RecentCalls calls;
  for (std::uint64_t sequence = 0; sequence < 100; ++sequence)
    calls.add(sequence, sequence % 90 == 9 ? kRefusedCall : 1);
  EXPECT_EQ(calls.refused_before(100), 1U) << "the 100th";
  EXPECT_EQ(calls.refused_before(101), 2U);
  EXPECT_EQ(calls.refused_before(99), 0U);
  EXPECT_EQ(RecentCalls().refused_before(3), 0U);
}

}  // namespace
}  // namespace kolo::test
