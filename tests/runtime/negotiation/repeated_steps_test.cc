// When steps repeat, and which lists they have.
#include "runtime/negotiation/repeated_steps.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace kolo::test::repeated_steps_test {
namespace {

SlotsBySteps list_of(std::initializer_list<std::uint32_t> slots, std::uint64_t step = 0) {
  SlotsBySteps list;
  for (const std::uint32_t slot : slots) insert(list, step, slot);
  return list;
}

TEST(RepeatedSteps, AreSteadyAfterSomeEqualOnes) {
  RepeatedSteps steps(2);
  for (int step = 0; step < 3; ++step) {
    EXPECT_FALSE(steps.is_steady());
    steps.note(list_of({0, 1}));
    EXPECT_FALSE(steps.is_steady());
    steps.note(list_of({2}));
  }
  EXPECT_TRUE(steps.is_steady()) << "the first one, and two like it";
  EXPECT_EQ(steps.lists().size(), 2U);
  steps.note(list_of({0, 1}));
  EXPECT_FALSE(steps.is_steady()) << "in the middle of a step";
}

TEST(RepeatedSteps, AreEqualHoweverTheirSlotsComeTogether) {
  RepeatedSteps steps(2);
  steps.note(list_of({0, 1, 2}));
  steps.note(list_of({2}));
  steps.note(list_of({0, 1}));
  steps.note(list_of({1}));
  steps.note(list_of({0}));
  EXPECT_FALSE(steps.is_steady());
  steps.note(list_of({2}));
  EXPECT_TRUE(steps.is_steady());
  EXPECT_EQ(steps.lists().size(), 3U) << "those of the last step";
}

TEST(RepeatedSteps, AreNotSteadyIfASlotIsMissingOrNew) {
  for (const bool is_missing : {false, true}) {
    RepeatedSteps steps(2);
    for (std::uint64_t step = 1; step < 20; ++step) {
      steps.note(list_of({0}, step));
      if (!is_missing || step % 3 != 0) steps.note(list_of({1}, step));
      if (!is_missing && step % 3 == 0) steps.note(list_of({2}, step));
      EXPECT_FALSE(steps.is_steady()) << step;
    }
  }
}

TEST(RepeatedSteps, CountTheCallersStepsOneByOne) {
  RepeatedSteps steps(2);
  for (std::uint64_t step = 1; step <= 3; ++step) steps.note(list_of({0}, step));
  EXPECT_TRUE(steps.is_steady());
  for (const std::uint64_t step : {5U, 5U, 7U, 8U, 0U, 1U}) {
    steps.note(list_of({0}, step));
    EXPECT_FALSE(steps.is_steady()) << step;
  }
}

TEST(RepeatedSteps, AreForgotten) {
  RepeatedSteps steps(1);
  steps.note(list_of({0}));
  steps.forget();
  steps.note(list_of({0}));
  EXPECT_FALSE(steps.is_steady());
  steps.note(list_of({0}));
  EXPECT_TRUE(steps.is_steady());
}

TEST(RepeatedSteps, AreWantedTwiceAsOftenAfterAShortPlan) {
  RepeatedSteps steps(2);
  const auto noted = [&] {
    steps.forget();
    for (int n = 1; n < 5000; ++n) {
      steps.note(list_of({0}));
      if (steps.is_steady()) return n;
    }
    return 0;
  };
  EXPECT_EQ(noted(), 3);
  steps.note_end(2);
  EXPECT_EQ(noted(), 5);
  steps.note_end(2);
  EXPECT_EQ(noted(), 9);
  for (int i = 0; i < 20; ++i) steps.note_end(2);
  EXPECT_EQ(noted(), 1025) << "at most";
  steps.note_end(1000);
  EXPECT_EQ(noted(), 3);
}

TEST(RepeatedSteps, AreNeverSteadyIfNoneAreWanted) {
  RepeatedSteps steps(0);
  for (int step = 0; step < 10; ++step) {
    steps.note(list_of({0}));
    EXPECT_FALSE(steps.is_steady());
  }
}

}  // namespace
}  // namespace kolo::test::repeated_steps_test
