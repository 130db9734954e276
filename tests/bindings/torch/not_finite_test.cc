// KOLO_CHECK_FINITE=error: every way to reduce gradients fails on all ranks with the rank and the
// parameter. The knob is read by init, so CTest runs these tests in a process of their own.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace {

using kolo::test::is_last;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::SGD;

/// Two layers. On the last rank, element 3 of the gradient of '1.weight' becomes `wrong`.
struct Net {
  torch::nn::Sequential net{torch::nn::Linear(4, 40), torch::nn::Linear(40, 2)};
  double wrong = NAN;

  Net() {
    net->named_parameters()["1.weight"].register_hook([this](const torch::Tensor& gradient) {
      torch::Tensor changed = gradient.clone();
      if (is_last()) changed.view(-1)[3] = wrong;
      return changed;
    });
  }
  void train(torch::optim::Optimizer& optimizer) {
    net->forward(torch::ones({1, 4})).sum().backward();
    optimizer.step();
  }
};

testing::Matcher<const std::string&> names(const std::string& parameter, const char* counts) {
  return AllOf(HasSubstr("rank " + std::to_string(kolo::size() - 1) + ": its input of "),
               HasSubstr(counts), HasSubstr(parameter), HasSubstr("KOLO_CHECK_FINITE=warn"));
}

TEST(DISABLED_NotFinite, DistributedOptimizerNamesTheParameter) {
  for (const double wrong : {double{NAN}, std::numeric_limits<double>::infinity()}) {
    Net net;
    net.wrong = wrong;
    kolo::DistributedOptimizer<SGD> optimizer(SGD(net.net->parameters(), 0.1),
                                              net.net->named_parameters());
    EXPECT_THAT(message_of([&] { net.train(optimizer); }),
                AllOf(names("1.weight'", std::isnan(wrong) ? " has 1 NaN and 0 infinite values"
                                                           : " has 0 NaN and 1 infinite values"),
                      HasSubstr("the first at element 3")));
  }
}

TEST(DISABLED_NotFinite, DistributedDataParallelNamesTheParameterInItsBucket) {
  for (const bool views : {false, true}) {
    Net net;
    kolo::DistributedDataParallel ddp(net.net, {.gradient_as_bucket_view = views});
    SGD optimizer(ddp.parameters(), 0.1);
    EXPECT_THAT(message_of([&] {
                  ddp.forward(torch::ones({1, 4})).sum().backward();
                  optimizer.step();
                }),
                names(views ? " in '1.weight'" : "1.weight'", " has 1 NaN and 0 infinite values"));
  }
}

TEST(DISABLED_NotFinite, ShardedOptimizerNamesTheParameterInItsBucket) {
  Net net;
  kolo::ShardedOptimizer<SGD> optimizer(SGD(net.net->parameters(), 0.1),
                                        net.net->named_parameters());
  EXPECT_THAT(message_of([&] { net.train(optimizer); }),
              names(" in '1.weight'", " has 1 NaN and 0 infinite values"));
}

TEST(DISABLED_NotFinite, ATensorIsNamed) {
  torch::Tensor loss = torch::ones({5});
  if (is_last()) loss[2] = NAN;
  EXPECT_THAT(message_of([&] { kolo::allreduce(loss, {.name = "loss"}); }),
              names("'loss'",
                    " of 5 elements has 1 NaN and 0 infinite values, the first at "
                    "element 2"));
  EXPECT_EQ(kolo::allreduce(torch::ones({1}), {.name = "next"}).item<float>(), kolo::size());
}

}  // namespace
