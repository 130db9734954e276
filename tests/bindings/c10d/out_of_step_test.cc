// Ranks of a ProcessGroupKolo out of step, under mpirun: other calls than the others', and such as
// fail at once on one rank alone: the others' fail as well, and no later call meets them.
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

/// What `call` fails with, at once or when it is waited for.
std::string failure_of_call(const std::function<WorkPtr()>& call) {
  return message_of([&] { call()->wait(); });
}

/// A call of any rank; `is_odd`: with an argument that cannot be.
using Call = std::function<WorkPtr(bool is_odd)>;

/// The last rank alone gives what cannot be; then all call rightly.
void expect_refused_by_all(const char* what, const Call& call, const std::string& why) {
  SCOPED_TRACE(what);
  EXPECT_THAT(failure_of_call([&] { return call(is_last()); }), HasSubstr(why));
  EXPECT_EQ(failure_of_call([&] { return call(false); }), "(no error)");
}

TEST_F(ProcessGroup, PartsThatOneRankRefuses) {
  if (size() == 1) GTEST_SKIP() << "one rank is all of them";
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> none;

  auto received = torch::empty({size()});
  const auto alltoall_base = [&](bool is_odd) {
    auto sent = torch::full({size()}, rank(), torch::kFloat32);
    std::vector<std::int64_t> splits(ranks, 1);
    if (is_odd) splits[0] = 2;
    return group_->alltoall_base(received, sent, none, splits, {});
  };
  expect_refused_by_all("alltoall_base", alltoall_base, "the splits of the input are [2");
  EXPECT_TRUE(torch::equal(received, torch::arange(size(), torch::kFloat32)));

  Tensors places;
  for (std::size_t r = 0; r < ranks; ++r) places.push_back(torch::empty({1}));
  const auto alltoall = [&](bool is_odd) {
    Tensors parts(ranks + (is_odd ? 1 : 0), torch::full({1}, rank(), torch::kFloat32));
    return group_->alltoall(places, parts, {});
  };
  expect_refused_by_all("alltoall", alltoall,
                        "takes " + std::to_string(size()) + " inputs, one of each rank, not ");
  EXPECT_TRUE(torch::equal(torch::cat(places), torch::arange(size(), torch::kFloat32)));

  std::vector<Tensors> lists(1);
  for (int r = 0; r < size(); ++r) lists[0].push_back(torch::empty({r + 1, 2}));
  const auto allgather = [&](bool is_odd) {
    Tensors inputs{is_odd ? torch::zeros({7}) : rows_of(rank())};
    return group_->allgather(lists, inputs);
  };
  expect_refused_by_all("allgather", allgather, "the input has 7 elements instead of ");
  for (int r = 0; r < size(); ++r)
    EXPECT_TRUE(torch::equal(lists[0][static_cast<std::size_t>(r)], rows_of(r)));

  // The root is another rank.
  std::vector<Tensors> at_root;
  if (rank() == 0) at_root.push_back(places);
  const auto gather = [&](bool is_odd) {
    std::vector<Tensors> outputs = is_odd ? std::vector<Tensors>{places} : at_root;
    Tensors inputs{torch::full({1}, 10 + rank(), torch::kFloat32)};
    return group_->gather(outputs, inputs);
  };
  expect_refused_by_all("gather", gather, "takes outputs at the root alone, which is rank 0");
  if (rank() == 0) {
    EXPECT_TRUE(torch::equal(torch::cat(places), torch::arange(10, 10 + size(), torch::kFloat32)));
  }

  auto whole = rank() == 0 ? torch::empty({size()}) : torch::Tensor();
  const auto gather_single = [&](bool is_odd) {
    auto input = torch::full({1}, 20 + rank(), torch::kFloat32);
    c10d::GatherOptions options;
    options.rootRank = is_odd ? -1 : 0;
    return group_->gather_into_tensor(whole, input, options);
  };
  expect_refused_by_all("gather_single", gather_single, "there is no rank -1 in this group");
  if (rank() == 0) {
    EXPECT_TRUE(torch::equal(whole, torch::arange(20, 20 + size(), torch::kFloat32)));
  }

  Tensors mine{torch::empty({1})};
  const auto scatter = [&](bool is_odd) {
    Tensors parts;
    for (int r = 0; r < size(); ++r) parts.push_back(torch::full({1}, 30 + r, torch::kFloat32));
    std::vector<Tensors> inputs;
    if (is_odd || rank() == 0) inputs.push_back(parts);
    return group_->scatter(mine, inputs);
  };
  expect_refused_by_all("scatter", scatter, "takes inputs at the root alone, which is rank 0");
  EXPECT_EQ(mine[0].item<float>(), 30 + rank());
}

/// Of the ordered door: ends kolo's communication, so each is run in a process of its own.
class ProcessGroupEnd : public ProcessGroup {
 protected:
  /// Rank 0 refuses the first of two calls of one form, and goes on.
  void expect_out_of_step(const Call& call, const std::string& why) {
    EXPECT_EQ(failure_of_call([&] { return call(false); }), "(no error)");
    const std::string first = failure_of_call([&] { return call(rank() == 0); });
    // Whoever notices first tells the others, with the reason if it is rank 0.
    constexpr const char* kAtOnce = "failed at once, for its arguments";
    constexpr const char* kThere = "failed there at once, for its arguments";
    const auto is_told = testing::AnyOf(HasSubstr(kAtOnce), HasSubstr(kThere));
    if (rank() == 0) {
      EXPECT_THAT(first, HasSubstr(why));
    } else {
      EXPECT_THAT(first, is_told);
    }
    EXPECT_THAT(failure_of_call([&] { return call(false); }), is_told);
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

TEST_F(ProcessGroupEnd, DISABLED_OneRankRefusesSeveralAtOnce) {
  expect_out_of_step(
      [&](bool is_odd) {
        Tensors tensors{mine(4), mine(4), is_odd ? torch::Tensor() : mine(4)};
        return group_->allreduce_coalesced(tensors, {});
      },
      "is undefined");
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
