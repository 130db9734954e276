// Errors within a process set name world ranks and the set. Also the resources that sets leave
// after their removal.
#include "tests/support/faulty_transport.h"
#include "tests/support/local_world.h"
#include "tests/support/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::set_failures_test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

/// Ranks 1 and 2 sum in their own set; rank 2's messages are subject to `fault`.
void sum_in_a_set(Fault fault, const testing::Matcher<const std::string&>& message) {
  std::latch over(2);  // rank 0 stays until then, without calls
  run_local_world(
      3,
      [&](int rank, Runtime& runtime) {
        const std::uint32_t set = added(runtime, {1, 2});
        if (rank == 0) return over.wait();
        std::vector<float> values(1000, 1.0F);
        Submission sum = allreduce_of("x", values);
        sum.process_set = set;
        const Status status = submit(runtime, std::move(sum))->wait();
        over.count_down();
        ASSERT_FALSE(status.ok());
        EXPECT_THAT(status.error().message, message) << rank;
      },
      {.variables = {{"KOLO_OPERATION_TIMEOUT", "2"}},
       .hosts = {0, 1, 2},
       .decorate = [fault](int rank, std::unique_ptr<Transport> transport) {
         return std::make_unique<FaultyTransport>(
             std::move(transport), [rank, fault](const FaultyCall& call) {
               const bool is_of_set = call.tag.communicator >= 3 && call.tag.communicator <= 5;
               return rank == 2 && call.kind == FaultyCall::Kind::kSend && is_of_set ? fault
                                                                                     : Fault::kNone;
             });
       }});
}

TEST(SetFailures, AStepThatFailsNamesTheRanksOfTheWorld) {
  sum_in_a_set(Fault::kFail, AllOf(HasSubstr("rank 2: "), HasSubstr("send to rank 1")));
}

TEST(SetFailures, AnOperationThatDoesNotEndNamesThemAndTheSet) {
  // Either of the two may come to the deadline first.
  sum_in_a_set(Fault::kDrop,
               AllOf(HasSubstr("'x' of process set 1 did not end within 2 s"),
                     AnyOf(AllOf(HasSubstr("of rank 1, 2 ranks"), HasSubstr("receive from rank 2")),
                           AllOf(HasSubstr("of rank 2, 2 ranks"), HasSubstr("send to rank 1")))));
}

TEST(SetFailures, SetsThatWereRemovedLeaveTheResponseCacheToTensors) {
  run_local_world(3,
                  [&](int rank, Runtime& runtime) {
                    for (int i = 0; i < 10; ++i)
                      ASSERT_TRUE(removed(runtime, added(runtime, {0, 1})).ok());
                    const auto before = runtime.negotiation_counters();
                    std::vector<float> values(10);
                    for (int i = 0; i < 5; ++i)
                      ASSERT_TRUE(submit(runtime, allreduce_of("t", values))->wait().ok());
                    const auto after = runtime.negotiation_counters();
                    if (rank != 1) return;
                    EXPECT_EQ(after.requests - before.requests, 1U);
                    EXPECT_EQ(after.cached - before.cached, 4U);
                  },
                  {.variables = {{"KOLO_CACHE_CAPACITY", "8"}}});
}

}  // namespace
}  // namespace kolo::test::set_failures_test
