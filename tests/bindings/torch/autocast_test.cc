// Autocast: it holds for this thread, until the object's end.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/autocast_mode.h>

namespace {

using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

TEST(Autocast, ChoosesTypesUntilItsEnd) {
  torch::nn::Linear layer(4, 4);
  const auto input = torch::ones({2, 4});
  const auto type = [&] { return layer(input).scalar_type(); };
  {
    const kolo::Autocast standard(torch::kCPU);
    EXPECT_EQ(type(), torch::kBFloat16);
    {
      const kolo::Autocast half(torch::kCPU, {.dtype = torch::kFloat16, .cache_enabled = false});
      EXPECT_EQ(type(), torch::kFloat16);
      const kolo::Autocast off(torch::kCPU, {.enabled = false});
      EXPECT_EQ(type(), torch::kFloat32);
    }
    EXPECT_EQ(type(), torch::kBFloat16);
    torch::mse_loss(layer(input), torch::zeros({2, 4})).backward();
  }
  EXPECT_EQ(type(), torch::kFloat32);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat32);
}

TEST(Autocast, SeesWeightsThatHaveChanged) {
  torch::nn::Linear layer(1, 1);
  for (int step = 0; step < 2; ++step) {
    const kolo::Autocast half(torch::kCPU);
    const auto output = layer(torch::ones({1, 1})) - layer->bias;
    EXPECT_NEAR(output.item<double>(), layer->weight.item<double>(), 0.02);
    const torch::NoGradGuard no_grad;
    layer->weight.add_(1);
  }
}

TEST(Autocast, SaysWhatIsWrong) {
  EXPECT_THAT(message_of([] { const kolo::Autocast guard(torch::kCPU, {.dtype = torch::kInt32}); }),
              AllOf(HasSubstr("Int"), HasSubstr("BFloat16")));
  EXPECT_THAT(message_of([] { const kolo::Autocast guard(torch::Device(torch::kMeta)); }),
              AllOf(HasSubstr("meta"), HasSubstr("cuda")));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
}

}  // namespace
