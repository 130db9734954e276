// The checker must catch wrong schedules of each collective too: each test breaks a right set.
#include "tests/support/schedule_checker.h"

#include "tests/support/proof_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace kolo::test {
namespace {

using ::testing::HasSubstr;

/// A right set of schedules, which a test then breaks.
struct Case {
  ScheduleRequest request;
  bool is_adasum;
  std::vector<Schedule> schedules;

  explicit Case(ScheduleRequest what, bool is_adasum_case = false)
      : request(std::move(what)), is_adasum(is_adasum_case) {
    for (request.rank = 0; request.rank < request.size; ++request.rank)
      schedules.push_back(make_schedule(request));
    EXPECT_EQ(verdict(), "right");
  }

  std::string verdict(bool input_is_output = false) const {
    const auto traffic = check_schedules(schedules, {.kind = request.kind,
                                                     .is_adasum = is_adasum,
                                                     .root = request.root,
                                                     .peer = request.peer,
                                                     .counts = request.counts,
                                                     .input_is_output = input_is_output});
    return traffic.ok() ? "right" : traffic.error().message;
  }

  Step& nth(std::size_t rank, StepKind kind, int n = 0) {
    for (Step& step : schedules[rank].steps)
      if (step.kind == kind && n-- == 0) return step;
    ADD_FAILURE() << "no such step";
    return schedules[rank].steps.front();
  }
  Operand& source(std::size_t rank, const Step& step) {
    return schedules[rank].operands[step.first_source];
  }
  Operand& destination(std::size_t rank, const Step& step) {
    return schedules[rank].operands[step.first_destination];
  }
};

Case allgather() {
  return Case({.kind = OperationKind::kAllgather,
               .size = 3,
               .chunk_elements = 2,
               .blocks_in_flight = 2,
               .counts = {4, 4, 4}});
}

/// Drops each dependency of a step of rank 1 in turn, if it `matters`; returns how many were
/// dropped.
template <class Matters>
int drop_each_dependency(const Case& right, Matters&& matters) {
  int dropped = 0;
  const Schedule& victim = right.schedules[1];
  for (StepId id = 0; id < victim.steps.size(); ++id)
    for (std::uint32_t i = 0; i < victim.steps[id].dependency_count; ++i) {
      const StepId dependency = victim.depends_on(victim.steps[id])[i];
      if (!matters(victim.steps[id], victim.steps[dependency])) continue;
      Case broken = right;
      Step& step = broken.schedules[1].steps[id];
      StepId* const list = broken.schedules[1].dependencies.data() + step.first_dependency;
      std::swap(list[i], list[--step.dependency_count]);
      EXPECT_NE(broken.verdict(), "right") << "step " << id << " without step " << dependency;
      ++dropped;
    }
  return dropped;
}

TEST(CheckerOfAllgather, CatchesPartsInWrongPlaces) {
  Case broken = allgather();
  std::swap(broken.destination(1, broken.nth(1, StepKind::kReceive, 0)),
            broken.destination(1, broken.nth(1, StepKind::kReceive, 2)));
  EXPECT_NE(broken.verdict(), "right");

  broken = allgather();  // the second half of a part twice
  broken.source(0, broken.nth(0, StepKind::kSend)).offset = 2;
  EXPECT_THAT(broken.verdict(), HasSubstr("rank 1: output element 0 holds element 2"));

  broken = allgather();  // another rank's part
  const Step& forward = broken.nth(1, StepKind::kSend, 2);
  broken.source(1, forward) = {Space::kInput, -1, 0, 2};
  EXPECT_THAT(broken.verdict(), HasSubstr("rank 2: output element 0 is the sum of 1×rank 1"));

  broken = allgather();  // its own part is missing
  broken.schedules[2].steps.pop_back();
  EXPECT_THAT(broken.verdict(), HasSubstr("rank 2: output element 8 holds nothing"));
}

TEST(CheckerOfAllgather, CatchesChunksSentOnBeforeTheyCame) {
  const int dropped = drop_each_dependency(allgather(), [](const Step& step, const Step& before) {
    return step.kind == StepKind::kSend && before.kind == StepKind::kReceive;
  });
  EXPECT_EQ(dropped, 2);
}

TEST(CheckerOfAllgather, CatchesEveryDroppedDependencyOfBruck) {
  const Case right({.kind = OperationKind::kAllgather,
                    .size = 6,
                    .algorithm = Algorithm::kRecursiveDoubling,
                    .counts = {4, 1, 4, 2, 3, 5}});
  ASSERT_EQ(right.schedules.front().algorithm, "allgather_bruck");
  EXPECT_GT(drop_each_dependency(right, [](const Step&, const Step&) { return true; }), 8);
}

TEST(CheckerOfAllgather, CatchesWrongSizes) {
  Case broken = allgather();
  ++broken.schedules[1].output_elements;
  EXPECT_THAT(broken.verdict(), HasSubstr("an output of 13 elements, not 4 and 12"));
  broken = allgather();
  broken.request.counts[0] = 5;
  EXPECT_THAT(broken.verdict(), HasSubstr("rank 0: an input of 4"));
}

TEST(CheckerOfAlltoall, CatchesExchangedParts) {
  Case broken({.kind = OperationKind::kAlltoall, .size = 3, .counts = {1, 2, 2, 3, 1, 2, 2, 2, 1}});
  std::swap(broken.destination(2, broken.nth(2, StepKind::kReceive, 0)),
            broken.destination(2, broken.nth(2, StepKind::kReceive, 1)));
  EXPECT_THAT(broken.verdict(), HasSubstr("rank 2: output element 0"));
}

TEST(CheckerOfReduceScatter, CatchesEveryDroppedDependency) {
  const Case right({.kind = OperationKind::kReduceScatter,
                    .size = 4,
                    .chunk_elements = 2,
                    .blocks_in_flight = 2,
                    .counts = {10, 9, 10, 12}});
  EXPECT_GT(drop_each_dependency(right, [](const Step&, const Step&) { return true; }), 30);
}

TEST(CheckerOfReduceScatter, CatchesWrongSums) {
  const Case right({.kind = OperationKind::kReduceScatter, .size = 3, .counts = {2, 2, 2}});
  Case broken = right;
  broken.nth(1, StepKind::kReduce, 1).scaling = Scaling::kPre;
  EXPECT_THAT(broken.verdict(), HasSubstr("postscaled 0 times"));

  broken = right;  // another part of its own input
  broken.schedules[1].operands[broken.nth(1, StepKind::kReduce).first_source + 1].offset = 2;
  EXPECT_THAT(broken.verdict(), HasSubstr("adds element 2 of the tensor to element 4"));

  broken = right;  // its own input is left out
  Step& last = broken.nth(1, StepKind::kReduce, 1);
  last.source_count = 1;
  EXPECT_THAT(broken.verdict(), HasSubstr("rounds the sum of 1×rank 0"));
}

TEST(CheckerOfGatherAndScatter, CatchesWrongParts) {
  Case gather({.kind = OperationKind::kGather, .size = 3, .root = 1, .counts = {2, 2, 2}});
  std::swap(gather.destination(1, gather.nth(1, StepKind::kReceive, 0)),
            gather.destination(1, gather.nth(1, StepKind::kReceive, 1)));
  EXPECT_THAT(gather.verdict(), HasSubstr("rank 1: output element 0 is the sum of 1×rank 2"));

  Case scatter({.kind = OperationKind::kScatter, .size = 3, .root = 1, .counts = {2, 2, 2}});
  scatter.source(1, scatter.nth(1, StepKind::kSend, 0)).offset = 0;
  EXPECT_THAT(scatter.verdict(), HasSubstr("rank 2: output element 0 holds element 0"));
}

TEST(CheckerOfPointToPoint, CatchesAChunkOutOfPlaceAndOneTooFew) {
  const Case right({.kind = OperationKind::kSend,
                    .size = 3,
                    .root = 2,
                    .peer = 1,
                    .count = 6,
                    .chunk_elements = 2});
  Case broken = right;
  broken.source(2, broken.nth(2, StepKind::kSend, 1)).offset = 4;
  EXPECT_THAT(broken.verdict(), HasSubstr("rank 1: output element 2 holds element 4"));
  broken = right;
  broken.schedules[1].steps.pop_back();
  EXPECT_THAT(broken.verdict(), HasSubstr("nothing at the other end"));
}

TEST(CheckerOfBarrier, CatchesALeakyOne) {
  const Case right({.kind = OperationKind::kBarrier, .size = 8});
  const int dropped = drop_each_dependency(
      right, [](const Step&, const Step& before) { return before.kind == StepKind::kWait; });
  EXPECT_EQ(dropped, 2);

  Case broken = right;  // the last round is missing on all ranks
  for (Schedule& schedule : broken.schedules) schedule.steps.resize(4);
  EXPECT_THAT(broken.verdict(), HasSubstr("rank 0 leaves the barrier before rank 1"));
}

TEST(CheckerOfAdasum, CatchesEveryDroppedDependency) {
  for (const int size : {4, 5, 6, 7}) {
    const Case right({.size = size, .count = 3, .algorithm = Algorithm::kRecursiveDoubling},
                     /*is_adasum=*/true);
    EXPECT_GT(drop_each_dependency(right, [](const Step&, const Step&) { return true; }), 5);
  }
}

TEST(CheckerOfAdasum, CatchesDifferentTreesAndVectorsInParts) {
  const Case right({.size = 4, .count = 6, .algorithm = Algorithm::kRecursiveDoubling},
                   /*is_adasum=*/true);
  Case broken = right;  // the higher rank's vector comes first
  const std::uint32_t first = broken.nth(1, StepKind::kReduce).first_source;
  std::swap(broken.schedules[1].operands[first], broken.schedules[1].operands[first + 1]);
  EXPECT_THAT(broken.verdict(), HasSubstr("was summed in another order"));

  broken = right;
  for (std::uint32_t i = 0; i < 3; ++i) broken.schedules[1].operands[first + i].length = 5;
  EXPECT_THAT(broken.verdict(), HasSubstr("combines 5 elements"));

  broken = right;
  broken.nth(1, StepKind::kReduce).source_count = 1;
  EXPECT_THAT(broken.verdict(), HasSubstr("combines 1 vectors"));

  broken = right;
  broken.nth(2, StepKind::kCopy).scaling = Scaling::kNone;
  EXPECT_THAT(broken.verdict(), HasSubstr("prescaled 0"));
}

TEST(CheckerOfInPlace, CatchesAnInputThatIsOverwrittenBeforeItIsRead) {
  // If both are the same memory, the root's copy overwrites the part that it has yet to send.
  Case broken({.kind = OperationKind::kScatter, .size = 2, .root = 0, .counts = {2, 2}});
  EXPECT_EQ(broken.verdict(true), "right");
  broken.source(0, broken.nth(0, StepKind::kCopy)) = {Space::kInput, -1, 2, 2};
  EXPECT_NE(broken.verdict(true), "right");
}

}  // namespace
}  // namespace kolo::test
