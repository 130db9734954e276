// Backwards and passes that differ between the ranks of a DistributedOptimizer: one more on one
// rank, one over gradients that are averages already, and parameters that are frozen while their
// passes are still to be reduced. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kolo::test::expect_gradient;
using kolo::test::is_last;
using kolo::test::message_of;
using kolo::test::mine;
using kolo::test::ranks_mean;
using kolo::test::Weights;
using testing::HasSubstr;

TEST(UnevenPasses, ASecondOneOfARankOverAveragesIsAveragedToo) {
  for (const bool grouped : {false, true}) {
    kolo::DistributedOptimizerOptions options;
    if (grouped) options.groups = std::vector<std::vector<std::string>>{{"a", "b"}};
    Weights weights(options);
    for (int step = 0; step < 3; ++step) {
      weights.optimizer.zero_grad();
      ((weights.a.sum() + weights.b.sum()) * mine()).backward();
      expect_gradient(weights.a, ranks_mean());
      if (is_last()) (weights.a.sum() + weights.b.sum()).backward();
      weights.optimizer.synchronize();
      for (const auto& weight : {weights.a, weights.b})
        expect_gradient(weight, ranks_mean() + 1.0 / kolo::size());
      weights.optimizer.step();
    }
  }
}

TEST(UnevenPasses, ABackwardThatMeetsTheNextStepOfOthersIsAnErrorOfAll) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  Weights weights;
  const auto step = [&] {
    weights.optimizer.zero_grad();
    weights.all().backward();
    expect_gradient(weights.a, ranks_mean());
    weights.optimizer.step();
  };
  step();
  weights.optimizer.zero_grad();
  weights.all().backward();
  // The other ranks have all their gradients and go on.
  const std::string message = message_of([&] {
    if (is_last()) {
      weights.a.sum().backward();
    } else {
      weights.optimizer.step();
      step();
    }
  });
  EXPECT_THAT(message, HasSubstr("has its backwards on all ranks"));
  step();
  step();
}

TEST(UnevenPasses, OnesOfAParameterThatIsFrozenAreReducedWithTheStep) {
  for (const bool grouped : {false, true}) {
    kolo::DistributedOptimizerOptions options{.backward_passes_per_step = 2};
    if (grouped) options.groups = 1;
    Weights weights(options);
    weights.all().backward();
    weights.a.set_requires_grad(false);
    weights.optimizer.step();
    for (const auto& weight : {weights.a, weights.b, weights.c})
      expect_gradient(weight, ranks_mean());
    weights.optimizer.zero_grad();
    for (int pass = 0; pass < 2; ++pass) weights.all().backward();
    weights.optimizer.step();
    EXPECT_FALSE(weights.a.grad().defined());
    expect_gradient(weights.b, 2 * ranks_mean());
  }
}

TEST(UnevenPasses, OnesOfAFrozenParameterAreHiddenUntilThen) {
  Weights weights({.backward_passes_per_step = 2});
  (weights.a.sum() * mine()).backward();
  weights.a.set_requires_grad(false);
  for (int pass = 0; pass < 2; ++pass) ((weights.b.sum() + weights.c.sum()) * mine()).backward();
  expect_gradient(weights.b, 2 * ranks_mean());
  weights.optimizer.step();  // all parameters, the same on every rank
  expect_gradient(weights.a, ranks_mean());
}

}  // namespace
