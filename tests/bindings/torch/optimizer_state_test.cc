#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

namespace {

using kolo::test::message_of;

/// The weight after each of four steps, which depend on all state and options.
template <class O>
std::vector<torch::Tensor> trajectory(O& optimizer, const torch::Tensor& weight) {
  std::vector<torch::Tensor> values;
  for (int i = 1; i <= 4; ++i) {
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = ((weight - i) * (weight - i) * torch::arange(1, 4)).sum();
      loss.backward();
      return loss;
    });
    values.push_back(weight.detach().clone());
  }
  return values;
}

/// State and options as LibTorch saves them. LibTorch cannot save the scratch buffers of an LBFGS;
/// they are only counted.
template <class O>
std::string fingerprint(O& optimizer) {
  std::ostringstream stream;
  std::optional<std::vector<torch::Tensor>> scratch;
  torch::optim::LBFGSParamState* state = nullptr;
  if constexpr (std::is_same_v<O, torch::optim::LBFGS>) {
    if (!optimizer.state().empty()) {
      state = static_cast<torch::optim::LBFGSParamState*>(optimizer.state().begin()->second.get());
      scratch = std::exchange(state->al(), std::nullopt);
    }
  }
  torch::save(optimizer, stream);
  stream << (scratch ? scratch->size() : 0);
  if (state != nullptr) state->al() = std::move(scratch);
  return std::move(stream).str();
}

/// The root has made `steps` steps, the others `other_steps`. After the broadcast all ranks
/// continue equally.
template <class O, class Options>
void goes_on_alike(Options options, int steps, int other_steps) {
  const int root = kolo::size() - 1;
  const bool is_root = kolo::rank() == root;
  auto weight = torch::full({3}, 5.0, torch::requires_grad());
  // The others start from another learning rate; the broadcast sets the root's.
  if (!is_root) options.lr(0.5 * options.lr());
  O optimizer({weight}, options);
  for (int i = 0; i < (is_root ? steps : other_steps); ++i) trajectory(optimizer, weight);
  const std::string before = fingerprint(optimizer);
  kolo::broadcast_optimizer_state(optimizer, root);
  if (is_root) {
    EXPECT_EQ(fingerprint(optimizer), before) << "the root's own stays";
  }
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(2.0);
  }
  for (const auto& value : trajectory(optimizer, weight)) {
    EXPECT_TRUE(torch::equal(value, kolo::broadcast(value, root)));
  }
}

template <class O, class Options>
void in_every_state(const Options& options) {
  for (const int steps : {0, 2}) {
    for (const int other_steps : {0, 1}) goes_on_alike<O>(options, steps, other_steps);
  }
}

TEST(OptimizerState, AdamW) {
  in_every_state<torch::optim::AdamW>(torch::optim::AdamWOptions(0.1).amsgrad(true));
}
TEST(OptimizerState, Adam) { in_every_state<torch::optim::Adam>(torch::optim::AdamOptions(0.1)); }
TEST(OptimizerState, Sgd) {
  in_every_state<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9));
  in_every_state<torch::optim::SGD>(torch::optim::SGDOptions(0.05));
}
TEST(OptimizerState, RmsProp) {
  in_every_state<torch::optim::RMSprop>(
      torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
}
TEST(OptimizerState, Adagrad) {
  in_every_state<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1).lr_decay(0.01));
}
TEST(OptimizerState, Lbfgs) {
  in_every_state<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.5).max_iter(4));
}

TEST(OptimizerState, ADistributedOptimizer) {
  auto weight = torch::full({3}, 5.0, torch::requires_grad());
  kolo::DistributedOptimizer optimizer(torch::optim::AdamW({weight}, 0.1),
                                       kolo::NamedTensors{{"w", weight}});
  if (kolo::rank() == 0) {
    static_cast<torch::optim::AdamWOptions&>(optimizer.param_groups()[0].options()).lr(0.25);
  }
  kolo::broadcast_optimizer_state(optimizer, 0);
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  trajectory(optimizer, weight);
}

/// One weight with two names, which parameters() lists twice.
struct TiedImpl : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::full({3}, 5.0));
  torch::Tensor bias = register_parameter("bias", torch::full({3}, 1.0));
  torch::Tensor again = register_parameter("again", weight);
};
TORCH_MODULE(Tied);

/// A failed `load` into an optimizer that has made a step does not change its further steps.
template <class Load>
void goes_on_tied(const Load& load) {
  Tied model, without;
  torch::optim::Adam optimizer(model->parameters(), 0.1), reference(without->parameters(), 0.1);
  const auto step = [](Tied& tied, torch::optim::Adam& adam) {
    adam.zero_grad();
    (tied->weight * tied->again + tied->bias).pow(2).sum().backward();
    adam.step();
  };
  step(model, optimizer);
  step(without, reference);
  load(model, optimizer);
  EXPECT_TRUE(optimizer.param_groups()[0].params()[2].is_same(model->weight)) << "listed as before";
  EXPECT_EQ(optimizer.state().size(), 2U);
  for (int i = 0; i < 2; ++i) {
    step(model, optimizer);
    step(without, reference);
  }
  EXPECT_TRUE(torch::equal(model->weight, without->weight)) << model->weight << without->weight;
  EXPECT_TRUE(torch::equal(model->bias, without->bias));
}

TEST(OptimizerState, OfAWeightOfTwoNames) {
  goes_on_tied([](Tied&, torch::optim::Adam& optimizer) {
    kolo::broadcast_optimizer_state(optimizer, kolo::size() - 1);
  });
  const auto folder = std::filesystem::temp_directory_path();
  const std::string path =
      kolo::broadcast_object((folder / ("kolo_tied_" + std::to_string(getpid()))).string(), 0);
  goes_on_tied([&](Tied& model, torch::optim::Adam& optimizer) {
    const kolo::CheckpointParts parts = {.module = model.get(), .optimizer = &optimizer};
    kolo::save_checkpoint(path, parts, 1);
    EXPECT_EQ(kolo::load_checkpoint(path, parts), 1);
  });
  kolo::barrier();  // the others may still read
  if (kolo::rank() == 0) std::filesystem::remove(path);
}

TEST(OptimizerState, OfATiedWeightIsRefusedByTwoOnAllRanks) {
  const bool is_tied = kolo::rank() == 0;
  Tied model;
  torch::Tensor other = torch::ones({3}, torch::requires_grad());
  torch::optim::Adam optimizer({model->weight, model->bias, is_tied ? model->again : other},
                               torch::optim::AdamOptions(is_tied ? 0.1 : 0.5));
  (model->weight + model->bias).sum().backward();
  optimizer.step();
  const std::string message = message_of([&] { kolo::broadcast_optimizer_state(optimizer, 0); });
  if (kolo::size() == 1) {
    EXPECT_EQ(message, "(no error)");
  } else {
    EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("rank 1: "),
                                        testing::HasSubstr("are several here; tie them")));
  }
  optimizer.step();
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), is_tied ? 0.1 : 0.5) << "as before";
}

TEST(OptimizerState, StateForOtherShapesIsRefusedOnAllRanks) {
  const int odd = kolo::size() - 1;
  auto weight = torch::ones({kolo::rank() == odd ? 3 : 2}, torch::requires_grad());
  torch::optim::Adam optimizer({weight}, kolo::rank() == odd ? 0.5 : 0.1);
  weight.sum().backward();
  optimizer.step();
  const std::string before = fingerprint(optimizer);
  const std::string message = message_of([&] { kolo::broadcast_optimizer_state(optimizer, 0); });
  if (kolo::size() == 1) {
    EXPECT_EQ(message, "(no error)");
  } else {
    EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("rank " + std::to_string(odd)),
                                        testing::HasSubstr("parameter 0 of group 0 is for the "
                                                           "sizes [2], but the parameter has "
                                                           "[3]")));
  }
  if (kolo::rank() == odd) {
    EXPECT_EQ(fingerprint(optimizer), before) << "as before";
  }
}

TEST(OptimizerState, OtherParametersAreNamed) {
  auto weight = torch::ones({3}, torch::requires_grad());
  auto more = torch::ones({3}, torch::requires_grad());
  std::vector<torch::Tensor> parameters = {weight};
  if (kolo::rank() != 0) parameters.push_back(more);
  torch::optim::SGD optimizer(parameters, 0.1);
  const std::string message = message_of([&] { kolo::broadcast_optimizer_state(optimizer, 0); });
  if (kolo::size() == 1) {
    EXPECT_EQ(message, "(no error)");
  } else {
    EXPECT_THAT(
        message,
        testing::AllOf(testing::HasSubstr("rank 1"),
                       testing::HasSubstr("cannot take the state of rank 0: loaded state dict "
                                          "contains a parameter group that has a different size")));
  }
}

}  // namespace
