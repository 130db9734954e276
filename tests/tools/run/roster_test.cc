// Which processes an elastic job has as hosts come and go and processes fail. No process runs here.
#include "tools/run/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kolo::run {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using End = Roster::End;

std::vector<Host> hosts_of(const std::string& text) { return parse_hostfile(text).value(); }

/// The hosts of the places.
std::vector<std::string> hosts_of(const std::vector<Place>& places) {
  std::vector<std::string> hosts;
  for (const Place& place : places) hosts.push_back(place.host);
  return hosts;
}

class RosterTest : public testing::Test {
 protected:
  /// Begins with the first processes, which are the world.
  void begin(Roster::Limits limits, const std::string& hosts) {
    roster_.emplace(limits, hosts_of(hosts));
    auto places = place_ranks(hosts_of(hosts), limits.first).value();
    for (Place& place : places) {
      place.process = place.rank;
      world_.insert(place.process);
    }
    roster_->adopt(places);
  }

  Roster::Decision decide() { return roster_->decide(world_, grows_, now_); }
  /// The processes that start have come into the world.
  Roster::Decision decide_and_join() {
    Roster::Decision decision = decide();
    for (const Place& place : decision.start) world_.insert(place.process);
    return decision;
  }
  std::string end(int process, End end) {
    return roster_->note_end(process, end, world_.contains(process), now_);
  }

  std::optional<Roster> roster_;
  std::set<int> world_;
  bool grows_ = true;
  Roster::Time now_ = Roster::Time() + seconds(1000);
};

TEST_F(RosterTest, NothingHappensWithoutNeed) {
  begin({.first = 4, .least = 2, .most = 4}, "a:2\nb:2");
  const auto decision = decide();
  EXPECT_THAT(decision.start, IsEmpty());
  EXPECT_THAT(decision.end, IsEmpty());
  EXPECT_THAT(decision.lines, IsEmpty());
  EXPECT_FALSE(decision.gives_up);
}

TEST_F(RosterTest, ALostProcessIsReplacedOnlyWhileThereAreRestarts) {
  begin({.first = 3, .least = 1, .most = 3, .restarts = 1}, "a:3");
  end(1, End::kFailed);
  const auto first = decide_and_join();
  ASSERT_EQ(first.start.size(), 1);
  EXPECT_EQ(first.start[0].process, 3);
  EXPECT_EQ(first.start[0].rank, 1) << "the number that is free";
  EXPECT_EQ(first.start[0].local_rank, 1);
  end(3, End::kFailed);
  EXPECT_THAT(decide().start, IsEmpty());
  EXPECT_EQ(roster_->size(), 2);
}

TEST_F(RosterTest, ASpareSlotIsNoWayAroundTheRestarts) {
  begin({.first = 2, .least = 1, .most = 2}, "a:2\nb:2");
  end(1, End::kFailed);
  EXPECT_THAT(decide().start, IsEmpty());
}

TEST_F(RosterTest, AJobGrowsOnceTheProgramIsKnownToBeElastic) {
  begin({.first = 2, .least = 1, .most = 3}, "a:2\nb:2");
  grows_ = false;
  EXPECT_THAT(decide().start, IsEmpty());
  grows_ = true;
  const auto decision = decide();
  EXPECT_THAT(hosts_of(decision.start), ElementsAre("b"));
  EXPECT_EQ(decision.start[0].local_size, 2);
}

TEST_F(RosterTest, NothingStartsBesideAProgramThatIsNotKnownToBeElastic) {
  begin({.first = 2, .least = 1, .most = 2}, "a:1\nb:1");
  world_ = {0};
  grows_ = false;
  end(1, End::kNoLogin);
  now_ += Blacklist::kCoolDown;
  EXPECT_THAT(decide().start, IsEmpty()) << "it would train alone";
  world_.clear();
  EXPECT_THAT(hosts_of(decide().start), ElementsAre("b")) << "the first world is still to come";
}

TEST_F(RosterTest, MappingByNodeTakesTheEmptiestHost) {
  begin({.first = 1, .least = 1, .most = 4, .mapping = Mapping::kNode}, "a:4\nb:4\nc:4");
  EXPECT_THAT(hosts_of(decide().start), ElementsAre("b", "c", "a"));
}

TEST_F(RosterTest, HostsThatComeAreUsedAndThoseThatGoAreLeft) {
  begin({.first = 1, .least = 1, .most = 3, .finds_hosts = true}, "a:1");
  roster_->set_hosts(hosts_of("a:1\nb slots=4"));
  EXPECT_THAT(hosts_of(decide_and_join().start), ElementsAre("b", "b")) << "--max-np";
  roster_->set_hosts(hosts_of("a:1\nc:1"));
  const auto decision = decide_and_join();
  EXPECT_THAT(decision.end, ElementsAre(1, 2));
  EXPECT_THAT(hosts_of(decision.start), ElementsAre("c"));
  EXPECT_THAT(decision.lines,
              ElementsAre("b is not listed any more; asking processes 1, 2 there to end",
                          "starting process 3 on c"));
  EXPECT_THAT(decide().end, IsEmpty()) << "they were asked";
}

TEST_F(RosterTest, AProcessThatWasAskedToEndHoldsItsSlotUntilThen) {
  begin({.first = 2, .least = 1, .most = 9, .finds_hosts = true}, "a:2");
  roster_->set_hosts(hosts_of("a:1"));
  EXPECT_THAT(decide().end, ElementsAre(1));
  roster_->set_hosts(hosts_of("a:2"));
  EXPECT_THAT(decide().start, IsEmpty());
  end(1, End::kAsked);
  EXPECT_EQ(decide().start.size(), 1) << "its end costs no restart";
}

TEST_F(RosterTest, TheLastProcessWithTheStateStaysUntilAnotherHasIt) {
  begin({.first = 2, .least = 1, .most = 2, .finds_hosts = true}, "a:2");
  roster_->set_hosts(hosts_of("b:2"));
  const auto first = decide();
  EXPECT_THAT(first.end, ElementsAre(1));
  EXPECT_THAT(hosts_of(first.start), ElementsAre("b")) << "with the one that stays: --max-np";
  EXPECT_THAT(first.lines, Contains(HasSubstr("process 0 on a stays until a process of another")));
  const auto waiting = decide();
  EXPECT_THAT(waiting.end, IsEmpty());
  EXPECT_THAT(waiting.lines, IsEmpty()) << "said once";
  world_.insert(first.start[0].process);
  const auto last = decide();
  EXPECT_THAT(last.end, ElementsAre(0));
  EXPECT_THAT(hosts_of(last.start), ElementsAre("b"));
}

TEST_F(RosterTest, OneRankMovesToAnotherHost) {
  begin({.first = 1, .least = 1, .most = 1, .finds_hosts = true}, "a:1");
  roster_->set_hosts(hosts_of("b:1"));
  EXPECT_THAT(hosts_of(decide_and_join().start), ElementsAre("b"));
  const auto decision = decide();
  EXPECT_THAT(decision.end, ElementsAre(0));
  EXPECT_THAT(decision.start, IsEmpty());
}

TEST_F(RosterTest, AHostThatComesBackHasNewSlots) {
  begin({.first = 2, .least = 1, .most = 9, .finds_hosts = true}, "a:1\nb:1");
  end(1, End::kFailed);
  EXPECT_THAT(decide().start, IsEmpty()) << "no restart";
  roster_->set_hosts(hosts_of("a:1"));
  decide();
  roster_->set_hosts(hosts_of("a:1\nb:1"));
  EXPECT_THAT(hosts_of(decide().start), ElementsAre("b"));
}

TEST_F(RosterTest, AHostThatFailsAgainAndAgainIsLeftAloneForLongerEachTime) {
  begin({.first = 1, .least = 1, .most = 2}, "a:1\nb:1");
  for (int failures = 1; failures < Blacklist::kMostFailures; ++failures) {
    const auto decision = decide();
    ASSERT_EQ(hosts_of(decision.start), std::vector<std::string>{"b"}) << failures;
    const seconds cool_down = Blacklist::kCoolDown * (1 << (failures - 1));
    EXPECT_THAT(end(decision.start[0].process, End::kNoLogin),
                HasSubstr("b is not used for " + std::to_string(cool_down.count()) + " s, after " +
                          std::to_string(failures) + " failure"));
    now_ += cool_down - seconds(1);
    EXPECT_THAT(decide().start, IsEmpty()) << failures;
    now_ += seconds(1);
  }
  const auto last = decide();
  ASSERT_EQ(last.start.size(), 1);
  EXPECT_THAT(end(last.start[0].process, End::kNoLogin), HasSubstr("b is not used any more"));
  now_ += seconds(1000 * 1000);
  EXPECT_THAT(decide().start, IsEmpty());
}

TEST_F(RosterTest, ProcessesThatFailAtOnceAreOneFailureOfTheirHost) {
  begin({.first = 3, .least = 1, .most = 3, .restarts = 9}, "a:1\nb:2\nc:2");
  EXPECT_THAT(end(1, End::kCut), HasSubstr("b is not used for 5 s, after 1 failure"));
  EXPECT_THAT(end(2, End::kCut), IsEmpty());
  EXPECT_THAT(hosts_of(decide().start), ElementsAre("c", "c"));
}

TEST_F(RosterTest, AProcessThatWasInTheWorldDoesNotSpeakAgainstItsHost) {
  begin({.first = 2, .least = 1, .most = 2, .restarts = 9}, "a:1\nb:1");
  EXPECT_THAT(end(1, End::kFailed), IsEmpty());
  auto decision = decide();
  EXPECT_THAT(hosts_of(decision.start), ElementsAre("b"));
  EXPECT_THAT(end(decision.start[0].process, End::kFailed), HasSubstr("b is not used for 5 s"));
  now_ += seconds(5);
  decision = decide_and_join();
  decide();
  EXPECT_THAT(end(decision.start[0].process, End::kCut), HasSubstr("after 1 failure in a row"))
      << "the world has had a process of it meanwhile";
}

TEST_F(RosterTest, TooFewProcessesWaitForAHostForSoLong) {
  begin({.first = 2, .least = 2, .most = 9, .finds_hosts = true, .wait = seconds(60)}, "a:1\nb:1");
  end(1, End::kFailed);
  EXPECT_THAT(decide().lines,
              ElementsAre("1 of at least 2 (--min-np) processes are there; waiting for more, up to "
                          "60 s (--elastic-timeout); hosts: a (1 slot), b (1 slot)"));
  EXPECT_TRUE(roster_->waits());
  now_ += seconds(59);
  EXPECT_FALSE(decide().gives_up);
  roster_->set_hosts(hosts_of("a:1\nc:1"));
  EXPECT_THAT(decide().lines, Contains("2 processes are there again"));
  EXPECT_FALSE(roster_->waits());
  roster_->set_hosts(hosts_of("a:1"));
  EXPECT_FALSE(decide().gives_up) << "the time begins anew";
  now_ += seconds(60);
  EXPECT_THAT(decide().gives_up, Optional(HasSubstr("after 60 s (--elastic-timeout)")));
}

TEST_F(RosterTest, WhereNothingMayComeTheJobEndsAtOnce) {
  begin({.first = 2, .least = 2, .most = 2, .wait = seconds(60)}, "a:1\nb:1\nc:1");
  end(1, End::kFailed);
  EXPECT_FALSE(roster_->may_have_enough(grows_)) << "no restart";
  EXPECT_THAT(decide().gives_up, Optional(HasSubstr("none may be started any more (--restarts)")));
}

TEST_F(RosterTest, AHostThatCoolsDownIsWaitedFor) {
  begin({.first = 2, .least = 2, .most = 2, .restarts = 1, .wait = seconds(60)}, "a:1\nb:1");
  end(1, End::kCut);
  const auto decision = decide();
  EXPECT_FALSE(decision.gives_up);
  EXPECT_THAT(decision.lines, ElementsAre(HasSubstr("b (1 slot, not used for 5 s)")));
  now_ += seconds(5);
  EXPECT_THAT(hosts_of(decide().start), ElementsAre("b"));
}

TEST_F(RosterTest, WhatEndsWithSuccessIsNotStartedAnew) {
  begin({.first = 2, .least = 2, .most = 4, .restarts = 9}, "a:4");
  grows_ = false;
  end(0, End::kDone);
  end(1, End::kDone);
  const auto decision = decide();
  EXPECT_THAT(decision.start, IsEmpty());
  EXPECT_FALSE(decision.gives_up);
  EXPECT_FALSE(roster_->waits());
}

TEST_F(RosterTest, NothingStartsWhenTheTrainingIsOver) {
  begin({.first = 2, .least = 1, .most = 4, .restarts = 9}, "a:4");
  roster_->finish();
  end(1, End::kFailed);
  EXPECT_THAT(decide().start, IsEmpty());
}

TEST(HostLists, HaveTheFormsOfHorovodAndOfHostFiles) {
  EXPECT_EQ(hosts_of("node1:4\nnode2 slots=2\n\nnode3  # one slot\nfd00::2 slots=2\n[fd00::3]:4\n"),
            (std::vector<Host>{
                {"node1", 4}, {"node2", 2}, {"node3", 1}, {"fd00::2", 2}, {"fd00::3", 4}}));
  for (const char* const wrong : {"", "# none\n", "node1:0", "node1:x", "node1 4", "-node1"})
    EXPECT_FALSE(parse_hostfile(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace kolo::run
