// A locked plan of three ranks: who wakes whom, and that all leave it together and in one order.
// Random programs of controllers_test and tests of whole runtimes cover the rest.
#include "tests/runtime/negotiation/members.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace kolo::test::locked_plan_test {
namespace {

/// Three ranks, which have locked a plan of one tensor.
class Locked : public testing::Test {
 protected:
  explicit Locked(const std::vector<int>& hosts) : members_(hosts, 16, /*plan_lock=*/1) {
    for (; members_.controller(2).counters().planned == 0; members_.settle())
      for (const int rank : {0, 1, 2}) submit(rank);
    for (const int rank : {0, 1, 2}) take(rank);
  }

  void submit(int rank, std::int64_t size = 7) {
    members_.submit(rank, "t", {.shape = {size}});
    members_.announce(rank);
  }
  /// The last response that the rank has taken.
  std::shared_ptr<const Response> take(int rank) {
    std::shared_ptr<const Response> last;
    for (std::vector<Agreed> agreed; members_.controller(rank).take_agreed(agreed);)
      last = agreed.back().response;
    return last;
  }

  Members members_;
};

class LockedMembers : public Locked {
 protected:
  LockedMembers() : Locked({0, 0, 0}) {}
};

class LockedHosts : public Locked {
 protected:
  LockedHosts() : Locked({0, 0, 1}) {}
};

class LockedByThemselves : public Locked {
 protected:
  LockedByThemselves() : Locked({0, 1, 2}) {}
  void deliver_all(std::pair<int, int> link) {
    while (members_.links().contains(link)) members_.deliver(link);
  }
  void deliver_to_0_and_1() {
    for (const int other : {0, 1, 2})
      for (const int rank : {0, 1}) deliver_all({other, rank});
  }
};

TEST_F(LockedMembers, WakeThoseWhoSleepOnceTheLastOneIsReady) {
  for (const int rank : {0, 1}) {
    submit(rank);
    EXPECT_TRUE(members_.controller(rank).fall_asleep()) << "there is nothing to do";
  }
  EXPECT_TRUE(members_.links().empty()) << "nobody can go on";
  submit(2);
  EXPECT_TRUE(members_.links().contains({2, 0}));
  EXPECT_TRUE(members_.links().contains({2, 1}));
  EXPECT_FALSE(members_.controller(0).fall_asleep()) << "the list is agreed on";
}

TEST_F(LockedMembers, AllLeaveWithTheFirstThatDoes) {
  for (const int rank : {0, 1}) submit(rank);
  submit(2, 8);
  members_.settle();
  for (const int rank : {0, 1, 2}) members_.announce(rank);
  members_.settle();
  for (const int rank : {0, 1, 2}) {
    const auto response = take(rank);
    ASSERT_NE(response, nullptr);
    ASSERT_TRUE(response->error.has_value());
    EXPECT_EQ(response->error->code, ErrorCode::kMismatch);
  }
}

TEST_F(LockedHosts, WakeTheLeaderWhoTellsTheOtherHost) {
  submit(0);
  EXPECT_TRUE(members_.controller(0).fall_asleep());
  EXPECT_TRUE(members_.links().empty()) << "its host is not ready";
  submit(1);
  EXPECT_TRUE(members_.links().contains({1, 0}));
  EXPECT_FALSE(members_.controller(0).fall_asleep()) << "it has to tell";
  members_.controller(0).wake_up();
  EXPECT_TRUE(members_.controller(1).fall_asleep());
  members_.settle();
  EXPECT_EQ(take(2), nullptr);
  submit(2);
  ASSERT_TRUE(members_.links().contains({2, 0}));
  members_.deliver({2, 0});
  EXPECT_TRUE(members_.links().contains({0, 1})) << "it wakes its host";
}

TEST_F(LockedByThemselves, TakeWhatRankZeroTellsAfterTheListsOfThePlan) {
  for (const int rank : {0, 1, 2}) submit(rank);
  deliver_to_0_and_1();
  // Ranks 0 and 1 leave the plan for a call of their own. Rank 2 hears of it from rank 0 alone.
  const Signature set{.kind = OperationKind::kAddProcessSet, .root = kByItsRanks, .shape = {0, 1}};
  for (const int rank : {0, 1}) {
    members_.go_on(rank, kEarly);
    ASSERT_EQ(take(rank)->name, "t");
    members_.submit(rank, "set", set);
    members_.announce(rank);
  }
  deliver_all({0, 2});
  members_.go_on(2, kEarly);
  deliver_to_0_and_1();
  for (const int rank : {0, 1}) {
    members_.go_on(rank, kEarly);
    members_.announce(rank);
  }
  deliver_all({1, 0});
  members_.go_on(0, kEarly);
  ASSERT_EQ(take(0)->name, "set");
  deliver_all({0, 2});
  members_.go_on(2, kEarly);
  EXPECT_EQ(take(2), nullptr) << "rank 1 may have more lists in common with it";
  members_.settle();
  std::vector<Agreed> agreed;
  ASSERT_TRUE(members_.controller(2).take_agreed(agreed));
  EXPECT_EQ(agreed.front().response->name, "t");
  ASSERT_TRUE(members_.controller(2).take_agreed(agreed));
  EXPECT_EQ(agreed.front().response->name, "set");
}

}  // namespace
}  // namespace kolo::test::locked_plan_test
