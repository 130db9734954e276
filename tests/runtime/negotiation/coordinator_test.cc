#include "runtime/negotiation/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

namespace kolo {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

const Coordinator::Clock::time_point kNow{100s};

Signature shaped(Shape shape) {
  Signature signature;
  signature.shape = std::move(shape);
  return signature;
}

std::vector<int> ranks(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(Coordinator, DecidesInTheOrderOfCompletion) {
  Coordinator coordinator(ranks(2));
  ASSERT_TRUE(coordinator.ready(0, {"a", shaped({1}), false}, kNow).ok());
  ASSERT_TRUE(coordinator.ready(0, {"b", shaped({2}), false}, kNow).ok());
  ASSERT_TRUE(coordinator.ready(1, {"b", shaped({2}), false}, kNow).ok());
  ASSERT_TRUE(coordinator.ready(1, {"a", shaped({1}), true}, kNow).ok());
  const auto decisions = coordinator.take_decisions();
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].name, "b");
  EXPECT_EQ(decisions[0].contributors, 2);
  EXPECT_EQ(decisions[1].name, "a");
  EXPECT_EQ(decisions[1].contributors, 1);
  EXPECT_FALSE(coordinator.has_decisions());
  EXPECT_EQ(coordinator.pending(), 0U);
}

TEST(Coordinator, NamesTensorRanksAndBothValues) {
  Coordinator coordinator(ranks(4));
  for (const int rank : {3, 1, 0}) {
    ASSERT_TRUE(coordinator.ready(rank, {"fc1.weight", shaped({10, 20}), false}, kNow).ok());
  }
  EXPECT_FALSE(coordinator.has_decisions()) << "rank 2 would be left behind";
  ASSERT_TRUE(coordinator.ready(2, {"fc1.weight", shaped({20, 10}), false}, kNow).ok());
  const auto decisions = coordinator.take_decisions();
  ASSERT_EQ(decisions.size(), 1U);
  ASSERT_TRUE(decisions[0].error.has_value());
  EXPECT_EQ(decisions[0].error->code, ErrorCode::kMismatch);
  EXPECT_EQ(
      decisions[0].error->message,
      "tensor 'fc1.weight': ranks 0, 1, 3 submitted shape [10, 20], but rank 2 submitted shape "
      "[20, 10]; every rank must submit the same shape under one name");
}

TEST(Coordinator, AGroupDoesNotWaitForAMemberThatHasFailedByItself) {
  const auto in_group = [](int members) {
    Signature signature = shaped({1});
    signature.group = "g";
    signature.group_size = members;
    return signature;
  };
  const Request a = {"a", in_group(2)};
  const Request b = {"b", in_group(2)};
  // The failing member may be its rank's last or first.
  for (const auto& [first, second] : {std::pair(b, a), std::pair(a, b)}) {
    Coordinator coordinator(ranks(2));
    ASSERT_TRUE(coordinator.ready(1, {"b", in_group(1)}, kNow).ok());
    ASSERT_TRUE(coordinator.ready(1, {"a", shaped({1})}, kNow).ok());
    ASSERT_TRUE(coordinator.ready(0, first, kNow).ok());
    ASSERT_TRUE(coordinator.ready(0, second, kNow).ok());
    const auto decisions = coordinator.take_decisions();
    ASSERT_EQ(decisions.size(), 2U);
    EXPECT_EQ(decisions[0].error.value().message,
              "tensor 'a': rank 0 submitted group 'g' of 2 members, but rank 1 submitted group "
              "none; every rank must submit the same group under one name");
    EXPECT_THAT(decisions[1].error.value().message,
                HasSubstr("'b': rank 0 submitted group 'g' of 2 members, but rank 1 submitted "
                          "group 'g' of 1 members"));
    EXPECT_TRUE(coordinator.idle());
  }
}

TEST(Coordinator, AGroupOfWhichEachMemberFailsByItselfLeavesNothing) {
  Coordinator coordinator(ranks(2));
  for (int step = 0; step < 2; ++step) {
    for (const std::string name : {"a", "b"}) {
      Signature in_group = shaped({1});
      in_group.group = "g";
      in_group.group_size = 2;
      ASSERT_TRUE(coordinator.ready(1, {name, shaped({1})}, kNow).ok());
      ASSERT_TRUE(coordinator.ready(0, {name, in_group}, kNow).ok());
    }
    EXPECT_EQ(coordinator.take_decisions().size(), 2U);
    EXPECT_TRUE(coordinator.idle());
  }
}

TEST(Coordinator, TellsEveryKindOfDifference) {
  const Signature base = shaped({3});
  const auto message = [&](const Signature& other) {
    Coordinator coordinator(ranks(2));
    EXPECT_TRUE(coordinator.ready(0, {"t", base, false}, kNow).ok());
    EXPECT_TRUE(coordinator.ready(1, {"t", other, false}, kNow).ok());
    return coordinator.take_decisions().at(0).error.value().message;
  };
  Signature other = base;
  other.kind = OperationKind::kBroadcast;
  EXPECT_THAT(message(other),
              HasSubstr("operation allreduce, but rank 1 submitted operation broadcast"));
  other = base;
  other.type = DataType::kInt64;
  EXPECT_THAT(message(other), HasSubstr("type float32, but rank 1 submitted type int64"));
  other = base;
  other.op = ReduceOp::kAverage;
  EXPECT_THAT(message(other), HasSubstr("reduce operation sum, but"));
  other = base;
  other.root = 1;
  EXPECT_THAT(message(other), HasSubstr("root 0, but rank 1 submitted root 1"));
  other = base;
  other.prescale = 0.5;
  EXPECT_THAT(message(other), HasSubstr("prescale 1, but rank 1 submitted prescale 0.5"));
  other = base;
  other.postscale = 0.5;
  EXPECT_THAT(message(other), HasSubstr("postscale 1, but rank 1 submitted postscale 0.5"));
}

TEST(Coordinator, RefusesASecondAnnouncement) {
  Coordinator coordinator(ranks(2));
  ASSERT_TRUE(coordinator.ready(1, {"t", shaped({1}), false}, kNow).ok());
  const Status status = coordinator.ready(1, {"t", shaped({1}), false}, kNow);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInternal);
}

TEST(Coordinator, ReportsWhatWaitsForTheSameRanksInOneLine) {
  Coordinator coordinator(ranks(3));
  for (const char* name : {"b", "c", "a"})
    ASSERT_TRUE(coordinator.ready(1, {name, shaped({1}), false}, kNow).ok());
  ASSERT_TRUE(coordinator.ready(2, {"d", shaped({1}), false}, kNow + 1s).ok());
  ASSERT_TRUE(coordinator.ready(1, {"d", shaped({1}), false}, kNow + 1s).ok());
  const auto lines = coordinator.stalled(kNow + 61s, 60s);
  EXPECT_THAT(lines, testing::UnorderedElementsAre(
                         "tensor 'a' and 2 more have waited for 61 s: submitted by rank 1, missing "
                         "on ranks 0, 2",
                         "tensor 'd' has waited for 60 s: submitted by ranks 1, 2, missing on "
                         "rank 0"));
  EXPECT_TRUE(coordinator.stalled(kNow + 62s, 60s).empty());
}

TEST(Coordinator, ReportsRanksThatWaitForEachOtherSooner) {
  Coordinator coordinator(ranks(2));
  ASSERT_TRUE(coordinator.ready(0, {"save", shaped({1}), false}, kNow).ok());
  EXPECT_TRUE(coordinator.stalled(kNow + 20s, 60s).empty());
  for (const char* name : {"gradient 2", "gradient 1"})
    ASSERT_TRUE(coordinator.ready(1, {name, shaped({1}), false}, kNow + 20s).ok());
  EXPECT_TRUE(coordinator.stalled(kNow + 29s, 60s).empty());
  const auto lines = coordinator.stalled(kNow + 30s, 60s);
  EXPECT_THAT(lines, testing::UnorderedElementsAre(
                         "tensor 'save' has waited for 30 s: submitted by rank 0, missing on rank "
                         "1; rank 1 has submitted tensor 'gradient 1' instead",
                         "tensor 'gradient 1' and 1 more have waited for 10 s: submitted by rank "
                         "1, missing on rank 0; rank 0 has submitted tensor 'save' instead"));
  EXPECT_TRUE(coordinator.stalled(kNow + 90s, 60s).empty());

  coordinator.expire(kNow + 620s, 600s);
  for (const auto& decision : coordinator.take_decisions())
    EXPECT_THAT(decision.error.value().message, HasSubstr(" instead; every rank must submit it"));
}

TEST(Coordinator, ReportsAStalledTensorOnceAndExpiresIt) {
  Coordinator coordinator(ranks(3));
  ASSERT_TRUE(coordinator.ready(1, {"slow", shaped({1}), false}, kNow).ok());
  EXPECT_TRUE(coordinator.stalled(kNow + 59s, 60s).empty());
  const auto lines = coordinator.stalled(kNow + 61s, 60s);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0],
            "tensor 'slow' has waited for 61 s: submitted by rank 1, missing on ranks 0, 2");
  EXPECT_TRUE(coordinator.stalled(kNow + 62s, 60s).empty());

  coordinator.expire(kNow + 599s, 600s);
  EXPECT_FALSE(coordinator.has_decisions());
  coordinator.expire(kNow + 600s, 600s);
  const auto decisions = coordinator.take_decisions();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(decisions[0].error.value().code, ErrorCode::kTimeout);
  EXPECT_THAT(decisions[0].error.value().message, HasSubstr("missing on ranks 0, 2 after 600 s"));
}

/// A coordinator of three ranks that has given up rank 1's part of tensor "t", in `step`.
Coordinator without_rank_1(std::uint64_t step) {
  Coordinator coordinator(ranks(3));
  for (const int rank : {0, 2})
    EXPECT_TRUE(coordinator.ready(rank, {.name = "t", .signature = {}, .step = step}, kNow).ok());
  coordinator.expire(kNow + 600s, 600s);
  EXPECT_EQ(coordinator.take_decisions().size(), 1U);
  return coordinator;
}

TEST(Coordinator, TellsARankThatComesLateThatItsCallHasFailed) {
  Coordinator coordinator = without_rank_1(0);
  // The others make the next call, of which rank 1 must be no part.
  for (const int rank : {0, 2})
    ASSERT_TRUE(coordinator.ready(rank, {.name = "t", .signature = {}}, kNow + 601s).ok());
  EXPECT_TRUE(coordinator.is_late(1, "t"));
  EXPECT_FALSE(coordinator.is_late(0, "t"));
  ASSERT_TRUE(coordinator.ready(1, {.name = "t", .signature = {}}, kNow + 602s).ok());
  const auto late = coordinator.take_decisions();
  ASSERT_EQ(late.size(), 1U);
  EXPECT_THAT(late[0].missing, testing::ElementsAre(0, 2)) << "for rank 1 alone";
  EXPECT_EQ(late[0].error.value().code, ErrorCode::kTimeout);
  EXPECT_EQ(late[0].error->message,
            "tensor 't': rank 1 is 1 call behind ranks 0, 2, which gave this one up 2 s ago "
            "(KOLO_OPERATION_TIMEOUT): it has failed on all ranks, and they meet again once rank 1 "
            "has caught up");
  EXPECT_FALSE(coordinator.is_late(1, "t"));
  ASSERT_TRUE(coordinator.ready(1, {.name = "t", .signature = {}}, kNow + 603s).ok());
  const auto met = coordinator.take_decisions();
  ASSERT_EQ(met.size(), 1U);
  EXPECT_FALSE(met[0].error.has_value());
  EXPECT_TRUE(coordinator.idle());
}

TEST(Coordinator, FailsEachCallThatTheOthersHaveGivenUp) {
  Coordinator coordinator = without_rank_1(0);
  for (const int rank : {0, 2})
    ASSERT_TRUE(coordinator.ready(rank, {.name = "t", .signature = {}}, kNow + 601s).ok());
  coordinator.expire(kNow + 1201s, 600s);
  coordinator.take_decisions();
  for (const char* behind : {"is 2 calls behind", "is 1 call behind"}) {
    ASSERT_TRUE(coordinator.ready(1, {.name = "t", .signature = {}}, kNow + 1202s).ok());
    EXPECT_THAT(coordinator.take_decisions().at(0).error.value().message, HasSubstr(behind));
  }
  ASSERT_TRUE(coordinator.ready(1, {.name = "t", .signature = {}}, kNow + 1203s).ok());
  EXPECT_FALSE(coordinator.has_decisions()) << "it waits for the others";
}

TEST(Coordinator, KnowsByTheStepWhetherARankIsLateOrHasLeftOneOut) {
  Coordinator late = without_rank_1(7);
  ASSERT_TRUE(late.ready(1, {.name = "t", .signature = {}, .step = 7}, kNow + 601s).ok());
  EXPECT_THAT(late.take_decisions().at(0).error.value().message,
              HasSubstr("rank 1 is at step 7, which ranks 0, 2 gave up 1 s ago"));
  Coordinator left_out = without_rank_1(7);
  for (const int rank : {0, 1, 2})
    ASSERT_TRUE(left_out.ready(rank, {.name = "t", .signature = {}, .step = 8}, kNow + 601s).ok());
  EXPECT_FALSE(left_out.take_decisions().at(0).error.has_value());
  EXPECT_FALSE(left_out.is_late(1, "t"));
}

TEST(Coordinator, AJoinedRankOwesNoCallOfBefore) {
  Coordinator coordinator = without_rank_1(0);
  Request join{"kolo/join", {}};
  join.signature.kind = OperationKind::kJoin;
  for (const int rank : {1, 0, 2}) ASSERT_TRUE(coordinator.ready(rank, join, kNow + 601s).ok());
  coordinator.take_decisions();
  for (const int rank : {0, 1, 2})
    ASSERT_TRUE(coordinator.ready(rank, {.name = "t", .signature = {}}, kNow + 602s).ok());
  EXPECT_FALSE(coordinator.take_decisions().at(0).error.has_value());
}

TEST(Coordinator, RanksAtDifferentStepsFailTogether) {
  const auto message = [](const std::vector<std::uint64_t>& steps) {
    Coordinator coordinator(ranks(static_cast<int>(steps.size())));
    for (std::size_t i = steps.size(); i-- > 0;) {
      const Request request{.name = "t", .signature = {}, .step = steps[i]};
      EXPECT_TRUE(coordinator.ready(static_cast<int>(i), request, kNow).ok());
    }
    const auto decisions = coordinator.take_decisions();
    if (!decisions.at(0).error) return std::string();
    EXPECT_EQ(decisions[0].error->code, ErrorCode::kMismatch);
    EXPECT_EQ(decisions[0].result, 8) << "from which all count on";
    return decisions[0].error->message;
  };
  EXPECT_EQ(message({8, 7}),
            "tensor 't': rank 1 is at step 7, rank 0 is at step 8: one of them has left out or "
            "repeated a batch; every rank must make the same steps");
  EXPECT_THAT(message({7, 8, 7}), HasSubstr("ranks 0, 2 are at step 7, rank 1 is at step 8: rank 1 "
                                            "has left out or repeated a batch"));
  EXPECT_THAT(message({7, 7, 8, 8}), HasSubstr("one of them has"));
  EXPECT_EQ(message({0, 7, 7}), "") << "one that tells no step meets any";
}

TEST(Coordinator, NamesTheRanksThatItDidWithout) {
  Coordinator coordinator(ranks(3));
  Request join{"kolo/join", {}};
  join.signature.kind = OperationKind::kJoin;
  ASSERT_TRUE(coordinator.ready(1, join, kNow).ok());
  ASSERT_TRUE(coordinator.ready(0, {"a", shaped({1})}, kNow).ok());
  ASSERT_TRUE(coordinator.ready(2, {"a", shaped({1})}, kNow).ok());
  const auto decisions = coordinator.take_decisions();
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_FALSE(decisions[0].error.has_value());
  EXPECT_EQ(decisions[0].missing, std::vector<int>{1});
}

}  // namespace
}  // namespace kolo
