// Groups of operations: all members or none, each with its own status. Also unnamed operations.
#include "tests/support/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace kolo::test::groups_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

using Works = std::vector<std::shared_ptr<Work>>;

Works submit_group(Runtime& runtime, std::vector<Submission> members, const std::string& group) {
  auto works = runtime.submit_group(std::move(members), group);
  EXPECT_TRUE(works.ok()) << works.error().message;
  return works.ok() ? *std::move(works) : Works();
}

TEST(Groups, OfManyStepsInAnyOrderAreCached) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int step = 0; step < 10; ++step) {
      std::deque<std::vector<float>> tensors;
      std::vector<std::vector<Submission>> groups(4);
      std::vector<int> order{0, 1, 2, 3};
      for (std::size_t g = 0; g < groups.size(); ++g) {
        for (std::size_t i = 0; i < 3 + g; ++i) {
          auto& tensor = tensors.emplace_back(10 * i + 1, static_cast<float>(rank + 1));
          groups[g].push_back(
              allreduce_of("g" + std::to_string(g) + "/" + std::to_string(i), tensor));
        }
      }
      std::shuffle(order.begin(), order.end(), random);
      Works all;
      for (const int g : order) {
        const auto index = static_cast<std::size_t>(g);
        for (auto& work : submit_group(runtime, groups[index], "g" + std::to_string(g)))
          all.push_back(std::move(work));
      }
      for (const auto& work : all) ASSERT_DONE(work);
      for (const auto& tensor : tensors) ASSERT_EQ(tensor.back(), 6.0F);
    }
    EXPECT_EQ(runtime.negotiation_counters().requests, 18U);
    EXPECT_EQ(runtime.negotiation_counters().cached, 9U * 18U);
  });
}

TEST(Groups, OneMembersMismatchFailsAllMembersAndNothingElse) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    for (int round = 0; round < 2; ++round) {
      std::vector<float> a(3, 1.0F);
      std::vector<float> b(rank == 0 ? 4 : 5, 1.0F);
      std::vector<float> c(6, 1.0F);
      std::vector<float> outside(2, 1.0F);
      const Works works = submit_group(
          runtime, {allreduce_of("a", a), allreduce_of("b", b), allreduce_of("c", c)}, "g");
      const auto other = submit(runtime, allreduce_of("outside", outside));
      const std::string reason =
          "tensor 'b': rank 0 submitted shape [4], but rank 1 submitted shape [5]; every rank must "
          "submit the same shape under one name";
      EXPECT_EQ(works[0]->wait().error().message,
                "tensor 'a': not done, since 'b' of its group 'g' has failed: " + reason);
      EXPECT_EQ(works[1]->wait().error().message, reason);
      EXPECT_EQ(works[2]->wait().error().code, ErrorCode::kMismatch);
      EXPECT_EQ(a.front(), 1.0F) << "nothing was done to it";
      ASSERT_DONE(other);
      // The names are free again.
      std::vector<float> fine(3, 1.0F);
      ASSERT_DONE(submit_group(runtime, {allreduce_of("a", fine)}, "g").front());
      EXPECT_EQ(fine.front(), 2.0F);
    }
  });
}

TEST(Groups, OfOtherMembersFailAtOnce) {
  run_local_world(3, [](int rank, Runtime& runtime) {
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(3, 1.0F);
    const Works works =
        submit_group(runtime, {allreduce_of("a", a), allreduce_of(rank == 1 ? "c" : "b", b)}, "g");
    EXPECT_THAT(works[0]->wait().error().message,
                testing::AllOf(StartsWith("tensor 'a': not done, since '"),
                               HasSubstr("of its group 'g' has failed")));
    const Error error = works[1]->wait().error();
    EXPECT_EQ(error.code, ErrorCode::kMismatch);
    EXPECT_THAT(error.message,
                HasSubstr("whose group of that name has other members; every rank must submit the "
                          "same members"));
    std::vector<float> next(3, 1.0F);
    ASSERT_DONE(submit(runtime, allreduce_of("b", next)));
    EXPECT_EQ(next.front(), 3.0F);
  });
}

TEST(Groups, AMemberThatIsNoneElsewhereIsAMismatch) {
  run_local_world(2, [](int rank, Runtime& runtime) {
    std::vector<float> a(3, 1.0F);
    const auto work = rank == 0 ? submit_group(runtime, {allreduce_of("a", a)}, "g").front()
                                : submit(runtime, allreduce_of("a", a));
    EXPECT_THAT(work->wait().error().message,
                HasSubstr("rank 0 submitted group 'g' of 1 members, but rank 1 submitted group "
                          "none"));
    ASSERT_DONE(submit(runtime, allreduce_of("a", a)));
  });
}

class GroupsOfRows : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GroupsOfRows, testing::Values(1, 2, 3, 4));

TEST_P(GroupsOfRows, GatherAndReduceScatterAllOrNothing) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    const auto ranks = static_cast<std::size_t>(size);
    const auto member = [](OperationKind kind, const char* name, Rows<float>& rows) {
      return rows_of(kind, name, rows, {static_cast<std::int64_t>(rows.input.size())});
    };
    for (int step = 0; step < 5; ++step) {
      // In the second-last step, the last rank's second member has another type of row.
      const bool odd = step == 3 && size > 1;
      const auto rows_of_rank = [](int r) { return static_cast<std::size_t>(r + 1); };
      Rows<float> a{std::vector<float>(rows_of_rank(rank), static_cast<float>(rank)), {}, {}};
      Rows<float> b{std::vector<float>(2 * ranks, static_cast<float>(rank)), {}, {}};
      auto second = odd && rank == size - 1
                        ? rows_of(OperationKind::kAllgather, "g/b", b, {size, 2})
                        : member(OperationKind::kAllgather, "g/b", b);
      const Works gathered = submit_group(
          runtime, {member(OperationKind::kAllgather, "g/a", a), std::move(second)}, "g");
      Rows<float> c{std::vector<float>(ranks, 1.0F), {}, {}};
      Rows<float> d{std::vector<float>(3 * ranks + 1, 2.0F), {}, {}};
      const Works scattered = submit_group(runtime,
                                           {member(OperationKind::kReduceScatter, "s/c", c),
                                            member(OperationKind::kReduceScatter, "s/d", d)},
                                           "s");
      for (const auto& work : scattered) ASSERT_DONE(work);
      EXPECT_EQ(c.output, std::vector<float>(1, static_cast<float>(size)));
      EXPECT_EQ(d.output, std::vector<float>(rank == 0 ? 4 : 3, 2.0F * static_cast<float>(size)));
      if (odd) {
        const Error first = gathered[0]->wait().error();
        const Error own = gathered[1]->wait().error();
        EXPECT_EQ(own.code, ErrorCode::kMismatch);
        EXPECT_THAT(own.message, HasSubstr("submitted row shape []"));
        EXPECT_EQ(
            first.message,
            "tensor 'g/a': not done, since 'g/b' of its group 'g' has failed: " + own.message);
        EXPECT_EQ(a.allocations + b.allocations, 0);
        continue;
      }
      for (const auto& work : gathered) ASSERT_DONE(work);
      std::vector<float> expected;
      Splits splits;
      for (int r = 0; r < size; ++r) {
        expected.insert(expected.end(), rows_of_rank(r), static_cast<float>(r));
        splits.push_back(r + 1);
      }
      EXPECT_EQ(a.output, expected);
      EXPECT_EQ(gathered[0]->received_splits(), splits);
      EXPECT_EQ(b.output.size(), 2 * ranks * ranks);
    }
  });
}

TEST(Groups, ANameInFlightRefusesTheWholeGroup) {
  run_local_world(1, [](int, Runtime& runtime) {
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(3, 1.0F);
    const auto refused = runtime.submit_group({allreduce_of("a", a), allreduce_of("a", b)}, "g");
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("'a': an operation of this name is in flight"));
    ASSERT_DONE(submit(runtime, allreduce_of("a", a)));
  });
}

class Unnamed : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Unnamed, testing::Values(1, 2, 3));

TEST_P(Unnamed, OperationsMeetByCallOrderAndAreCached) {
  const int size = GetParam();
  run_local_world(size, [&](int rank, Runtime& runtime) {
    const auto of_all = static_cast<float>(size * (size + 1)) / 2;
    for (int step = 0; step < 10; ++step) {
      // More operations at once than there are names for one signature.
      std::deque<std::vector<float>> tensors;
      Works works;
      for (int i = 0; i < 50; ++i) {
        auto& tensor =
            tensors.emplace_back(i % 2 == 0 ? 3 : 4, static_cast<float>((rank + 1) * (i + 1)));
        works.push_back(submit(runtime, allreduce_of("", tensor)));
      }
      for (auto& work : submit_group(runtime,
                                     {allreduce_of("", tensors.emplace_back(5, 1.0F)),
                                      allreduce_of("", tensors.emplace_back(6, 1.0F))},
                                     ""))
        works.push_back(std::move(work));
      for (const auto& work : works) ASSERT_DONE(work);
      for (std::size_t i = 0; i < 50; ++i)
        ASSERT_EQ(tensors[i].back(), of_all * static_cast<float>(i + 1)) << "call " << i;
      ASSERT_EQ(tensors.back().back(), static_cast<float>(size));
    }
    const auto counters = runtime.negotiation_counters();
    EXPECT_EQ(counters.requests + counters.cached, 520U);
    // All names that were announced before the first agreement, and no more.
    EXPECT_LE(counters.requests, 2U * 16U + 2U);
  });
}

TEST_P(Unnamed, OneCallIsEnoughToBeCached) {
  run_local_world(GetParam(), [](int, Runtime& runtime) {
    for (int step = 0; step < 40; ++step) {
      std::vector<float> values(3, 1.0F);
      ASSERT_DONE(submit(runtime, allreduce_of("", values)));
      std::vector<float> other(3, 1.0F);
      for (const auto& work :
           submit_group(runtime, {allreduce_of("", values), allreduce_of("", other)}, "")) {
        ASSERT_DONE(work);
      }
    }
    EXPECT_EQ(runtime.negotiation_counters().requests, 3U);
  });
}

}  // namespace
}  // namespace kolo::test::groups_test
