// The benchmark's ResNets are those of the paper: numbers of parameters, one forward and one
// backward.
#include "examples/synthetic_benchmark/resnet.h"

#include <gtest/gtest.h>

namespace synthetic {
namespace {

TEST(ResNet, HasTheParametersOfTheOriginal) {
  EXPECT_EQ(parameter_count(*ResNet(18)), 11'689'512);
  EXPECT_EQ(parameter_count(*ResNet(50)), 25'557'032);
}

TEST(ResNet, OtherDepthsAreRefused) { EXPECT_THROW(ResNet(34), c10::Error); }

TEST(ResNet, EveryParameterGetsAGradient) {
  for (const int layers : {18, 50}) {
    ResNet network(layers);
    const torch::Tensor scores = network->forward(torch::randn({2, 3, 64, 64}));
    EXPECT_EQ(scores.sizes(), (std::vector<std::int64_t>{2, 1000}));
    scores.square().sum().backward();
    for (const auto& parameter : network->named_parameters())
      EXPECT_TRUE(parameter->grad().defined()) << layers << " layers: " << parameter.key();
  }
}

}  // namespace
}  // namespace synthetic
