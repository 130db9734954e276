// A refusal by DistributedDataParallel on one rank ends all ranks, and their errors name this rank.
// On all ranks at once.
#include "tests/support/ddp_ranks.h"
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::test::average_bucket;
using kolo::test::is_last;
using kolo::test::mean_of_ranks;
using kolo::test::message_of;
using kolo::test::mine;
using testing::AllOf;
using testing::HasSubstr;

int last() { return kolo::size() - 1; }

struct Case {
  bool finds = false, views = false, hook = false;
  DdpOptions options() const {
    return {.find_unused_parameters = finds, .gradient_as_bucket_view = views};
  }
};

/// The rank itself gets the same text without its number.
void expect_named(const std::string& message, const std::string& what) {
  EXPECT_THAT(message, HasSubstr(what));
  if (!is_last()) {
    EXPECT_THAT(message, HasSubstr("rank " + std::to_string(last()) + ": "));
  }
}

class DdpOneRank : public testing::TestWithParam<Case> {};

TEST_P(DdpOneRank, ASparseGradientIsNamedByAll) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 2).sparse(is_last()));
  DistributedDataParallel ddp(embedding, GetParam().options());
  if (GetParam().hook) ddp.register_comm_hook(average_bucket);
  const auto step = [&] { (ddp.forward(torch::tensor({1, 2})).sum() * mine()).backward(); };
  expect_named(message_of(step), "the gradient of parameter 'weight' is sparse");
  ddp.zero_grad();
  embedding->options.sparse(false);
  step();
  EXPECT_NEAR(embedding->weight.grad()[1][0].item<double>(), mean_of_ranks(), 1e-5);
}

TEST_P(DdpOneRank, AGraphOfGradientsIsNamedByAll) {
  torch::nn::Linear layer(2, 1);
  DistributedDataParallel ddp(layer, GetParam().options());
  if (GetParam().hook) ddp.register_comm_hook(average_bucket);
  const auto step = [&](bool create_graph) {
    const auto input = torch::full({1, 2}, mine());
    ddp.forward(input).pow(2).sum().backward({}, true, create_graph);
  };
  expect_named(message_of([&] { step(is_last()); }), "create_graph");
  ddp.zero_grad();
  EXPECT_EQ(message_of([&] { step(false); }), "(no error)");
}

INSTANTIATE_TEST_SUITE_P(Options, DdpOneRank,
                         testing::Values(Case{}, Case{.views = true}, Case{.finds = true},
                                         Case{.finds = true, .views = true}, Case{.hook = true},
                                         Case{.finds = true, .hook = true}));

/// Kolo has aborted after it, so tests/torch.cmake runs it by itself.
TEST(DdpEnd, DISABLED_AGradientThatComesTooLateOnOneRankEndsOnAll) {
  struct BranchesImpl : torch::nn::Module {
    torch::nn::Linear left{register_module("left", torch::nn::Linear(2, 1))};
    torch::nn::Linear right{register_module("right", torch::nn::Linear(2, 1))};
    torch::Tensor forward(bool use_right) {
      const auto input = torch::ones({1, 2});
      return use_right ? left(input) + right(input) : left(input);
    }
  };
  DistributedDataParallel ddp(std::make_shared<BranchesImpl>(), {.static_graph = true});
  ddp.forward(false).sum().backward();
  EXPECT_THAT(message_of([&] {
                while (true) ddp.forward(is_last()).sum().backward();
              }),
              AllOf(HasSubstr("parameter 'right."),
                    HasSubstr("rank " + std::to_string(last()) + " did not expect")));
}

}  // namespace
