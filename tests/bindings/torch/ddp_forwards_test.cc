// ForwardWindow: which backwards communicate, dropped steps and unused parameters. No rank is
// needed.
#include "bindings/torch/gradients/ddp_forwards.h"

#include <gtest/gtest.h>

namespace kolo {
namespace {

torch::Tensor weight() { return torch::ones({2}, torch::requires_grad()); }

/// A forward of all ranks that returns `output`.
void forward(ForwardWindow& window, const torch::Tensor& output, bool complete = true) {
  EXPECT_TRUE(window.begin(/*training=*/true));
  window.expect_pass();
  EXPECT_TRUE(window.wants_outputs());
  EXPECT_FALSE(window.end({output}, complete));
}

TEST(ForwardWindow, AForwardWhoseOutputWasDroppedIsAStep) {
  ForwardWindow window(/*searches=*/false);
  torch::Tensor kept = weight() * 2;
  forward(window, kept);
  forward(window, weight() * 2);
  EXPECT_EQ(window.dropped(), 1);
  kept.reset();
  EXPECT_EQ(window.dropped(), 2);
  window.clear();
  EXPECT_EQ(window.dropped(), 0);
}

TEST(ForwardWindow, AnOutputOfAnUnknownTypeMayStillBeThere) {
  ForwardWindow window(/*searches=*/false);
  forward(window, weight() * 2, /*complete=*/false);
  EXPECT_EQ(window.dropped(), 0);
}

TEST(ForwardWindow, OneBackwardAfterNoSyncIsLocal) {
  ForwardWindow window(/*searches=*/false);
  EXPECT_FALSE(window.set_local(true));
  EXPECT_FALSE(window.begin(/*training=*/true));
  EXPECT_TRUE(window.set_local(false));
  EXPECT_TRUE(window.is_local());
  window.end_local(/*is_inner=*/true);
  EXPECT_TRUE(window.is_local()) << "the outer backward still runs";
  window.end_local(/*is_inner=*/false);
  EXPECT_FALSE(window.is_local());
  window.set_local(true);
  EXPECT_TRUE(window.is_local()) << "every backward inside no_sync()";
}

TEST(ForwardWindow, AForwardOfAllRanksOwesAPass) {
  ForwardWindow window(/*searches=*/false);
  forward(window, weight() * 2);
  window.set_local(true);
  EXPECT_FALSE(window.begin(/*training=*/true));
  EXPECT_FALSE(window.is_local());
  window.clear();
  EXPECT_FALSE(window.begin(/*training=*/true));
  EXPECT_TRUE(window.is_local());
}

TEST(ForwardWindow, ABackwardThroughAForwardInEvalCommunicates) {
  ForwardWindow window(/*searches=*/false);
  EXPECT_FALSE(window.begin(/*training=*/false));
  EXPECT_TRUE(window.wants_outputs());
  EXPECT_TRUE(window.end({weight() * 2}, /*complete=*/true));
}

TEST(ForwardWindow, ParametersAreUnusedOnlyWhereAllOutputsAreKnown) {
  ForwardWindow window(/*searches=*/true);
  const torch::Tensor used = weight();
  const torch::Tensor other = weight();
  EXPECT_FALSE(window.is_unused(other));
  forward(window, used * 2);
  EXPECT_TRUE(window.is_unused(other));
  EXPECT_FALSE(window.is_unused(used));
  forward(window, used * 2, /*complete=*/false);
  EXPECT_FALSE(window.is_unused(other));
}

}  // namespace
}  // namespace kolo
