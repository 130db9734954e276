#include "runtime/health/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kolo {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Rank 0 of three, with a timeout of 8 s: it looks each second and sends a heartbeat each 2 s.
class HeartbeatTest : public ::testing::Test {
 protected:
  Heartbeat::Findings look() {
    EXPECT_TRUE(heartbeat.due(now));
    auto findings = heartbeat.look(
        now, {1, 2}, [&](int rank) { return links[static_cast<std::size_t>(rank)]; },
        [&](int rank) { return rank == 0 || rank == gone; });
    EXPECT_FALSE(heartbeat.due(now));
    return findings;
  }
  /// Checks for `duration`, until a check finds a silent rank.
  Heartbeat::Findings look_for(seconds duration) {
    Heartbeat::Findings findings;
    for (const auto end = now + duration; now < end && findings.silent.empty();) {
      now += seconds(1);
      findings = look();
    }
    return findings;
  }

  Heartbeat heartbeat{seconds(8)};
  std::vector<LinkActivity> links = std::vector<LinkActivity>(3);
  int gone = -1;
  Heartbeat::Clock::time_point now = Heartbeat::Clock::time_point(seconds(1000));
};

TEST_F(HeartbeatTest, BeatsGoOverLinksThatAreOpen) {
  EXPECT_THAT(look().beat, IsEmpty());
  links[2].opened = true;
  EXPECT_THAT(look_for(seconds(1)).beat, ElementsAre(2));
  links[1].opened = true;
  EXPECT_THAT(look_for(seconds(1)).beat, ElementsAre(1));
  EXPECT_THAT(look_for(seconds(1)).beat, ElementsAre(2));
  EXPECT_THAT(look_for(seconds(1)).beat, ElementsAre(1));
}

TEST_F(HeartbeatTest, WhoHasBeatenMustGoOn) {
  look();
  heartbeat.on_beat(1);
  links[1].arrivals = 1;
  EXPECT_THAT(look_for(seconds(8)).silent, IsEmpty());
  const auto findings = look_for(seconds(1));
  ASSERT_EQ(findings.silent.size(), 1U);
  EXPECT_EQ(findings.silent[0].rank, 1);
  EXPECT_EQ(findings.silent[0].duration, seconds(8));
}

TEST_F(HeartbeatTest, ASilenceIsFoundWithinHalfASecond) {
  look();
  heartbeat.on_beat(1);
  links[1].arrivals = 1;
  const auto begun = now;
  Heartbeat::Findings findings;
  while (findings.silent.empty() && now < begun + seconds(20)) {
    now += std::chrono::milliseconds(50);
    if (heartbeat.due(now)) findings = look();
  }
  EXPECT_LE(now - begun, std::chrono::milliseconds(8500));
}

TEST_F(HeartbeatTest, AnyMessageIsASignOfLife) {
  look();
  heartbeat.on_beat(1);
  for (int i = 0; i < 10; ++i) {
    ++links[1].arrivals;
    EXPECT_THAT(look_for(seconds(6)).silent, IsEmpty());
  }
}

TEST_F(HeartbeatTest, NobodyIsExpectedWhoHasNotBeaten) {
  look();
  links[2] = {true, 5};
  EXPECT_THAT(look_for(seconds(100)).silent, IsEmpty());
}

TEST_F(HeartbeatTest, WhoHasSaidGoodbyeIsLeftAlone) {
  look();
  heartbeat.on_beat(1);
  links[1] = {true, 1};
  gone = 1;
  EXPECT_THAT(look_for(seconds(100)).silent, IsEmpty());
  EXPECT_THAT(look_for(seconds(2)).beat, IsEmpty());
}

TEST_F(HeartbeatTest, WhoHasSleptAccusesNobody) {
  look();
  heartbeat.on_beat(1);
  EXPECT_THAT(look_for(seconds(6)).silent, IsEmpty());
  now += seconds(100);
  EXPECT_THAT(look().silent, IsEmpty());
  // The others have the whole timeout to be heard.
  EXPECT_THAT(look_for(seconds(7)).silent, IsEmpty());
  EXPECT_EQ(look_for(seconds(1)).silent.size(), 1U);
}

}  // namespace
}  // namespace kolo
