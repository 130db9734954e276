// Ranks of a ProcessGroupKolo that are out of step, under mpirun: one rank makes other calls, or
// its call fails at once. The other ranks' calls must fail as well, and no later call may match
// them.
#include "tests/bindings/c10d/group_fixture.h"
#include "tests/support/message_of.h"

#include <kolo/c10d.h>
#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace {

using namespace kolo::test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// The error of `call`, thrown at once or by its wait.
std::string failure_of_call(const std::function<WorkPtr()>& call) {
  return message_of([&] { call()->wait(); });
}

/// A call that any rank can make; with `is_odd`, an argument is invalid.
using Call = std::function<WorkPtr(bool is_odd)>;

/// In-order submission: a failure ends kolo's communication, so each test has a process of its own.
/// DISABLED_: not among the tests of a common process; CTest runs each (tests/torch.cmake).
class ProcessGroupEnd : public ProcessGroup {
 protected:
  /// Rank 0's first of two equal calls is refused, and rank 0 goes on. `others_wait`: the other
  /// ranks need something in this call.
  void expect_out_of_step(const Call& call, const std::string& why, bool others_wait = true) {
    const std::string before = failure_of_call([&] { return call(false); });
    const std::string first = failure_of_call([&] { return call(rank() == 0); });
    // The first rank that notices tells the others; if it is rank 0, with the reason.
    constexpr const char* kAtOnce = "failed at once, for its arguments";
    constexpr const char* kThere = "failed there at once, for its arguments";
    const auto is_told = testing::AnyOf(HasSubstr(kAtOnce), HasSubstr(kThere));
    // Rank 0 may be through with it, and out of step, while another rank still waits.
    if (before != "(no error)") {
      EXPECT_NE(rank(), 0);
      EXPECT_THAT(before, is_told);
    }
    if (rank() == 0) {
      EXPECT_THAT(first, HasSubstr(why));
    } else if (others_wait) {
      EXPECT_THAT(first, is_told);
    }
    // A rank that needs nothing may run ahead of the others by many calls.
    Tensors tensors{mine(4)};
    EXPECT_THAT(
        failure_of_call([&] { return others_wait ? call(false) : group_->allreduce(tensors); }),
        is_told);
  }
};

TEST_F(ProcessGroupEnd, DISABLED_OutOfStep) {
  Tensors tensors{mine(4)};
  group_->allreduce(tensors)->wait();
  auto all = torch::empty({size() * 4});
  const auto work =
      rank() == 0 ? group_->_allgather_base(all, tensors[0]) : group_->allreduce(tensors);
  const std::string message = message_of([&] { work->wait(); });
  EXPECT_THAT(message, HasSubstr("allgather"));
  EXPECT_THAT(message, HasSubstr("allreduce"));
  EXPECT_FALSE(work->isSuccess());
  const auto future = work->getFuture();
  future->wait();
  EXPECT_TRUE(future->hasError());
}

TEST_F(ProcessGroupEnd, DISABLED_OneRankRefusesAReduce) {
  expect_out_of_step(
      [&](bool is_odd) {
        Tensors tensors{is_odd ? torch::zeros({1}).expand({4}) : mine(4)};
        return group_->reduce(tensors, {});
      },
      "strides [0] share memory");
}

TEST_F(ProcessGroupEnd, DISABLED_OneRankHasAnotherRoot) {
  expect_out_of_step(
      [&](bool is_odd) {
        Tensors tensors{mine(4)};
        c10d::ReduceOptions to;
        to.rootRank = is_odd ? size() : 0;
        return group_->reduce(tensors, to);
      },
      "there is no rank 3 in this group");
}

TEST_F(ProcessGroupEnd, DISABLED_OneRankRefusesSeveralAtOnce) {
  expect_out_of_step(
      [&](bool is_odd) {
        Tensors tensors{mine(4), mine(4), is_odd ? torch::Tensor() : mine(4)};
        return group_->allreduce_coalesced(tensors, {});
      },
      "is undefined");
}

TEST_F(ProcessGroupEnd, DISABLED_TheRootRefusesAGatherSingle) {
  expect_out_of_step(
      [&](bool is_odd) {
        auto input = mine(4);
        auto output = torch::empty({size() * 4 - (is_odd ? 1 : 0)});
        return group_->gather_into_tensor(output, input, {});
      },
      "gather_single: the output has 11 elements instead of 12", /*others_wait=*/false);
}

TEST_F(ProcessGroupEnd, DISABLED_OneRankRefusesAReduceScatter) {
  expect_out_of_step(
      [&](bool is_odd) {
        Tensors outputs{torch::empty({2})};
        std::vector<Tensors> inputs(1);
        for (int r = 0; r < size() + (is_odd ? 1 : 0); ++r) inputs[0].push_back(mine(2));
        return group_->reduce_scatter(outputs, inputs, {});
      },
      "inputs, one of each rank, not ");
}

}  // namespace
