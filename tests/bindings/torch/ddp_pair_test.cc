// Two modules under DistributedDataParallel in one backward. Autograd reaches them in another order
// on every second rank. On all ranks at once.
#include "tests/support/ddp_ranks.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::test::average_bucket;
using kolo::test::mean_of_ranks;
using kolo::test::message_of;
using kolo::test::mine;
using testing::AllOf;
using testing::HasSubstr;

/// Two layers; a call uses one or both.
struct EitherBranchImpl : torch::nn::Module {
  torch::nn::Linear left{register_module("left", torch::nn::Linear(2, 1))};
  torch::nn::Linear right{register_module("right", torch::nn::Linear(2, 1))};
  torch::Tensor forward(const torch::Tensor& input, bool use_right) {
    const torch::Tensor sum = left(input).sum();
    return use_right ? sum + right(input).sum() : sum;
  }
};
TORCH_MODULE(EitherBranch);

struct Pair {
  DistributedDataParallel<EitherBranch> one, other;
  explicit Pair(const DdpOptions& options)
      : one(EitherBranch(), options), other(EitherBranch(), options) {}
  void register_hooks() {
    for (auto* const ddp : {&one, &other}) ddp->register_comm_hook(average_bucket);
  }
  void zero_grad() {
    one.zero_grad();
    other.zero_grad();
  }
  /// The module that is computed last gets its gradients first.
  void backward(bool use_right) {
    const auto input = torch::full({1, 2}, mine());
    const bool is_even = kolo::rank() % 2 == 0;
    const auto first = (is_even ? one : other).forward(input, use_right);
    const auto second = (is_even ? other : one).forward(input, use_right);
    (first + second).backward();
  }
  void expect_averages(double right) const {
    for (const auto& layers : {*one.module(), *other.module()}) {
      EXPECT_NEAR(layers.left->weight.grad()[0][0].item<double>(), mean_of_ranks(), 1e-5);
      EXPECT_NEAR(layers.right->weight.grad()[0][0].item<double>(), right, 1e-5);
    }
  }
};

std::vector<DdpOptions> with_and_without_views(const DdpOptions& options) {
  std::vector<DdpOptions> both(2, options);
  both[1].gradient_as_bucket_view = false;
  return both;
}

TEST(DdpPair, IsAveragedInWhateverOrder) {
  for (const DdpOptions& options : with_and_without_views({})) {
    Pair pair(options);
    for (int step = 0; step < 3; ++step) {
      pair.zero_grad();
      pair.backward(true);
      pair.expect_averages(mean_of_ranks());
    }
    EXPECT_EQ(pair.one.stats().rebuilds, 1);
    EXPECT_EQ(pair.other.stats().rebuilds, 1);
  }
}

TEST(DdpPair, FindsUnusedParametersInWhateverOrder) {
  for (const bool is_static : {false, true}) {
    for (const DdpOptions& options :
         with_and_without_views({.find_unused_parameters = true, .static_graph = is_static})) {
      Pair pair(options);
      for (int step = 0; step < 3; ++step) {
        pair.zero_grad();
        pair.backward(kolo::rank() == 0);
        pair.expect_averages(1.0 / kolo::size());
      }
    }
  }
}

TEST(DdpPair, WithAHookInWhateverOrder) {
  Pair pair({});
  pair.register_hooks();
  for (int step = 0; step < 3; ++step) {
    pair.zero_grad();
    pair.backward(true);
    pair.expect_averages(mean_of_ranks());
  }
}

TEST(DdpPair, AnErrorOfBothEndsOnAllRanksAndLeavesBothUsable) {
  const int last = kolo::size() - 1;
  for (const bool hook : {false, true}) {
    Pair pair({});
    if (hook) pair.register_hooks();
    EXPECT_THAT(message_of([&] { pair.backward(kolo::rank() != last); }),
                AllOf(HasSubstr("parameter 'right.weight' on rank " + std::to_string(last) + ";"),
                      HasSubstr("find_unused_parameters")));
    pair.zero_grad();
    pair.backward(true);
    pair.expect_averages(mean_of_ranks());
  }
}

TEST(DdpPair, AnErrorOfOneLeavesTheOtherAlikeOnAllRanks) {
  for (const DdpOptions& options : with_and_without_views({})) {
    Pair pair(options);
    bool is_wrong = true;
    pair.one.register_comm_hook([&is_wrong](const kolo::GradBucket& bucket) {
      return [average = average_bucket(bucket), is_wrong] {
        const torch::Tensor result = average();
        return is_wrong ? torch::zeros({1}) : result;
      };
    });
    EXPECT_THAT(message_of([&] { pair.backward(true); }), HasSubstr("the communication hook's"));
    is_wrong = false;
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(pair.other.stats().rebuilds, 1);
      pair.zero_grad();
      pair.backward(true);
      pair.expect_averages(mean_of_ranks());
    }
  }
}

}  // namespace
