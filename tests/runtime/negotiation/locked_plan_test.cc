// A locked plan of three ranks: who wakes whom, and that all leave it together. Random programs of
// controllers_test and tests of whole runtimes cover the rest.
#include "tests/runtime/negotiation/members.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace kolo::test::locked_plan_test {
namespace {

/// Three ranks of a host, which have locked a plan of one tensor.
class LockedMembers : public testing::Test {
 protected:
  LockedMembers() {
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

  Members members_{{0, 0, 0}, 16, /*plan_lock=*/1};
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

}  // namespace
}  // namespace kolo::test::locked_plan_test
