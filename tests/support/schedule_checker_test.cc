// The checker must catch what it claims to catch: each test breaks a right set of schedules.
#include "tests/support/schedule_checker.h"

#include "runtime/collectives/allreduce_ring.h"
#include "tests/support/peer_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace kolo::test {
namespace {

using ::testing::HasSubstr;

std::vector<Schedule> ring(int size = 3, Placement placement = Placement::kPacked) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < size; ++rank)
    schedules.push_back(
        allreduce_ring(rank, size, 5 * 2 * static_cast<std::uint64_t>(size),
                       {.chunk_elements = 2, .blocks_in_flight = 2, .placement = placement}));
  return schedules;
}

std::vector<Schedule> one_pass() {
  return {one_pass_sum_of_three(0, 6), one_pass_sum_of_three(1, 6), one_pass_sum_of_three(2, 6)};
}

std::string verdict(const std::vector<Schedule>& schedules, CheckOptions options = {}) {
  const auto traffic = check_schedules(schedules, options);
  return traffic.ok() ? "right" : traffic.error().message;
}

Step& nth(Schedule& schedule, StepKind kind, int n = 0) {
  for (Step& step : schedule.steps)
    if (step.kind == kind && n-- == 0) return step;
  ADD_FAILURE() << "no such step";
  return schedule.steps.front();
}

bool is_join(const Step& step) { return step.kind == StepKind::kCopy && step.source_count == 0; }

void drop_dependency(Schedule& schedule, Step& step, std::uint32_t which) {
  auto* const list = schedule.dependencies.data() + step.first_dependency;
  std::swap(list[which], list[step.dependency_count - 1]);
  --step.dependency_count;
}

TEST(ScheduleChecker, AcceptsWhatIsRight) {
  EXPECT_EQ(verdict(ring()), "right");
  EXPECT_EQ(verdict(one_pass()), "right");
}

TEST(ScheduleChecker, CatchesEveryDroppedDependency) {
  int dropped = 0;
  for (const Placement placement : {Placement::kInPlace, Placement::kPacked}) {
    const std::vector<Schedule> right = ring(3, placement);
    const Schedule& victim = right[1];
    for (StepId id = 0; id < victim.steps.size(); ++id)
      for (std::uint32_t i = 0; i < victim.steps[id].dependency_count; ++i) {
        // A join may bound the blocks in flight without guarding memory.
        const StepId dependency = victim.depends_on(victim.steps[id])[i];
        if (is_join(victim.steps[id]) || is_join(victim.steps[dependency])) continue;
        std::vector<Schedule> broken = right;
        drop_dependency(broken[1], broken[1].steps[id], i);
        // An input may be read where the result goes, if both are the same memory.
        EXPECT_FALSE(verdict(broken) == "right" &&
                     verdict(broken, {.input_is_output = true}) == "right")
            << "step " << id << " without step " << dependency;
        ++dropped;
      }
  }
  EXPECT_GT(dropped, 50);
}

TEST(ScheduleChecker, CatchesASlotUsedAgainTooEarly) {
  // The receives of a later block wait for the join of the block that used their slots.
  std::vector<Schedule> broken = ring();
  Schedule& victim = broken[1];
  for (Step& step : victim.steps)
    if (step.kind == StepKind::kReceive && step.dependency_count == 1 &&
        is_join(victim.steps[victim.depends_on(step).front()])) {
      step.dependency_count = 0;
      break;
    }
  EXPECT_THAT(verdict(broken), HasSubstr("race"));
}

TEST(ScheduleChecker, CatchesRacesBetweenRanks) {
  const std::vector<Schedule> right = one_pass();
  for (StepId id = 0; id < right[1].steps.size(); ++id)
    for (std::uint32_t i = 0; i < right[1].steps[id].dependency_count; ++i) {
      if (is_join(right[1].steps[id])) continue;
      std::vector<Schedule> broken = right;
      drop_dependency(broken[1], broken[1].steps[id], i);
      EXPECT_NE(verdict(broken), "right") << "step " << id;
    }
}

TEST(ScheduleChecker, CatchesWrongMessages) {
  std::vector<Schedule> broken = ring();
  nth(broken[0], StepKind::kSend, 2).tag = 999;
  EXPECT_THAT(verdict(broken), HasSubstr("nothing at the other end"));

  broken = ring();
  nth(broken[0], StepKind::kSend, 2).tag = nth(broken[0], StepKind::kSend, 1).tag;
  EXPECT_THAT(verdict(broken), HasSubstr("used twice"));

  broken = ring();
  nth(broken[0], StepKind::kSend).peer = 0;
  EXPECT_THAT(verdict(broken), HasSubstr("nothing at the other end"));

  broken = ring();
  broken[0].operands[nth(broken[0], StepKind::kSend).first_source].length = 1;
  EXPECT_THAT(verdict(broken), HasSubstr("but 2 at the other end"));
}

TEST(ScheduleChecker, CatchesWrongSums) {
  std::vector<Schedule> broken = ring();  // its own contribution instead of the received one
  Schedule& victim = broken[2];
  const Step& reduce = nth(victim, StepKind::kReduce);
  victim.operands[reduce.first_source] = victim.operands[reduce.first_source + 1];
  EXPECT_THAT(verdict(broken), HasSubstr("2×rank 2"));

  broken = ring();
  for (Step& step : broken[1].steps)
    if (step.scaling == Scaling::kBoth) step.scaling = Scaling::kPre;
  EXPECT_THAT(verdict(broken), HasSubstr("postscaled 0 times"));

  broken = ring();
  nth(broken[1], StepKind::kReduce).scaling = Scaling::kNone;
  EXPECT_THAT(verdict(broken), HasSubstr("prescaled 0"));

  broken = ring();  // chunks exchanged: each element must arrive at its own offset
  const Step& unpack = broken[0].steps.back();
  broken[0].operands[unpack.first_source].offset ^= 2;
  EXPECT_NE(verdict(broken), "right");
}

TEST(ScheduleChecker, CatchesPartialSumsThatAreRounded) {
  std::vector<Schedule> broken = ring();
  Operand& sum = broken[1].operands[nth(broken[1], StepKind::kReduce).first_destination];
  ASSERT_TRUE(sum.partial);
  sum.partial = false;
  EXPECT_THAT(verdict(broken), HasSubstr("rounds the sum of 1×rank 0"));

  broken = ring();
  broken[1].operands[nth(broken[1], StepKind::kSend, 1).first_source].partial = false;
  EXPECT_THAT(verdict(broken), HasSubstr("a partial sum at one end alone"));

  broken = ring();  // at both ends: a float32 value cannot be read as a half type
  broken[1].operands[nth(broken[1], StepKind::kSend, 1).first_source].partial = false;
  broken[2].operands[nth(broken[2], StepKind::kReceive, 1).first_destination].partial = false;
  EXPECT_THAT(verdict(broken), HasSubstr("is not what it was written as"));

  broken = ring();
  broken[0].operands[nth(broken[0], StepKind::kCopy).first_destination].space = Space::kOutput;
  broken[0].operands[nth(broken[0], StepKind::kCopy).first_destination].partial = true;
  EXPECT_THAT(verdict(broken), HasSubstr("a partial sum in space"));
}

TEST(ScheduleChecker, CatchesSumsInDifferentOrders) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 2; ++rank) {
    ScheduleBuilder builder("exchange", rank, 2, 1);
    builder.need_scratch(2);
    const Operand own{Space::kScratch, -1, 0, 1}, slot{Space::kScratch, -1, 1, 1};
    const StepId packed = builder.copy({Space::kInput, -1, 0, 1}, {own}, Scaling::kPre, {});
    builder.send(1 - rank, 0, own, {packed});
    const StepId received = builder.receive(1 - rank, 0, slot, {});
    builder.reduce({own, slot}, {{Space::kOutput, -1, 0, 1}}, Scaling::kPost, {packed, received});
    schedules.push_back(std::move(builder).finish());
  }
  EXPECT_THAT(verdict(schedules),
              HasSubstr("rank 1: output element 0 was summed in another order"));
}

TEST(ScheduleChecker, CatchesDeadlocksThatBufferingHides) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < 2; ++rank) {
    ScheduleBuilder builder("head_on", rank, 2, 1);
    const StepId sent = builder.send(1 - rank, 0, {Space::kInput, -1, 0, 1}, {});
    builder.receive(1 - rank, 0, {Space::kOutput, -1, 0, 1}, {sent});
    schedules.push_back(std::move(builder).finish());
  }
  EXPECT_THAT(verdict(schedules), HasSubstr("deadlock"));
}

TEST(ScheduleChecker, CatchesBadStructure) {
  std::vector<Schedule> broken = ring();
  broken[0].scratch_elements -= 1;
  EXPECT_THAT(verdict(broken), HasSubstr("reaches to element"));

  broken = ring();
  broken[1].dependencies[nth(broken[1], StepKind::kReduce).first_dependency] = 1000;
  EXPECT_THAT(verdict(broken), HasSubstr("not before it"));

  broken = ring();
  broken[1].operands[nth(broken[1], StepKind::kReduce).first_destination].space = Space::kInput;
  EXPECT_THAT(verdict(broken), HasSubstr("writes the input"));

  broken = ring();
  const Step& reduce = nth(broken[1], StepKind::kReduce);
  broken[1].operands[reduce.first_destination] = broken[1].operands[reduce.first_source];
  broken[1].operands[reduce.first_destination].offset -= 1;
  EXPECT_THAT(verdict(broken), HasSubstr("writes a part of"));

  broken = ring();
  nth(broken[1], StepKind::kSend).source_count = 0;
  EXPECT_THAT(verdict(broken), HasSubstr("0 sources"));

  broken = ring();
  std::swap(broken[0], broken[1]);
  EXPECT_THAT(verdict(broken), HasSubstr("says rank"));
}

TEST(ScheduleChecker, CatchesAMissingPieceOfTheResult) {
  std::vector<Schedule> broken = ring();
  Step& unpack = broken[2].steps.back();
  unpack.source_count = unpack.destination_count = 0;
  EXPECT_THAT(verdict(broken), HasSubstr("holds nothing"));
}

}  // namespace
}  // namespace kolo::test
