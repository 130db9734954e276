// A ShardedOptimizer for a model that registers one weight under two names, such as a language
// model whose output layer is its embedding. On all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace {

using kolo::test::message_of;
using testing::HasSubstr;
using torch::optim::AdamW;

struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    torch::manual_seed(3);
    embedding = register_module("embedding", torch::nn::Embedding(7, 5));
    hidden = register_module("hidden", torch::nn::Linear(5, 5));
    output = register_parameter("output", embedding->weight);
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return torch::nn::functional::linear(torch::tanh(hidden(embedding(tokens))), output);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear hidden{nullptr};
  torch::Tensor output;
};
TORCH_MODULE(LanguageModel);

/// This model has a separate weight for the output.
struct UntiedModelImpl : torch::nn::Module {
  UntiedModelImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(7, 5));
    hidden = register_module("hidden", torch::nn::Linear(5, 5));
    output = register_parameter("output", torch::ones({7, 5}));
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear hidden{nullptr};
  torch::Tensor output;
};
TORCH_MODULE(UntiedModel);

/// Each parameter once.
std::vector<torch::Tensor> parameters_of(const LanguageModel& model) {
  std::vector<torch::Tensor> all;
  std::set<const void*> seen;
  for (const torch::Tensor& parameter : model->parameters())
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) all.push_back(parameter);
  return all;
}

AdamW adam_of(const LanguageModel& model) {
  return AdamW(parameters_of(model), torch::optim::AdamWOptions(1e-2).amsgrad(true));
}

template <class O>
void train(LanguageModel& model, O& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 * step + kolo::rank()));
    const torch::Tensor tokens = torch::randint(7, {6});
    optimizer.zero_grad();
    torch::cross_entropy_loss(model->forward(tokens), tokens.roll(1)).backward();
    optimizer.step();
  }
}

void expect_close(const LanguageModel& one, const LanguageModel& other, const char* what) {
  EXPECT_TRUE(one->embedding->weight.is_same(one->output)) << what << ": tied still";
  for (const auto& item : one->named_parameters()) {
    EXPECT_TRUE(torch::allclose(item.value(), other->named_parameters()[item.key()], 1e-5, 1e-6))
        << what << ": " << item.key();
  }
}

TEST(ShardedTies, AWeightOfTwoNamesIsOneParameter) {
  LanguageModel plain, model, grouped, in_ddp;
  ASSERT_EQ(model->parameters().size(), parameters_of(model).size() + 1);
  kolo::DistributedOptimizer reference(adam_of(plain), plain->named_parameters());
  kolo::ShardedOptimizer optimizer(adam_of(model), model->named_parameters());
  kolo::ShardedOptimizer groups(
      adam_of(grouped), grouped->named_parameters(),
      {.groups = std::vector<std::vector<std::string>>{{"hidden.bias", "output"}}});
  train(plain, reference, 0, 10);
  train(model, optimizer, 0, 10);
  train(grouped, groups, 0, 10);
  expect_close(model, plain, "sharded");
  expect_close(grouped, plain, "in groups");
  const std::size_t whole = kolo::state_bytes(reference);
  EXPECT_LE(optimizer.state_bytes(),
            whole / static_cast<std::size_t>(kolo::size()) + 3 * sizeof(float));
  kolo::DistributedDataParallel ddp(in_ddp);
  kolo::ShardedOptimizer behind(adam_of(in_ddp), in_ddp->named_parameters(),
                                {.gradients_are_reduced = true});
  for (int step = 0; step < 10; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 * step + kolo::rank()));
    const torch::Tensor tokens = torch::randint(7, {6});
    behind.zero_grad();
    torch::cross_entropy_loss(ddp.forward(tokens), tokens.roll(1)).backward();
    behind.step();
  }
  expect_close(in_ddp, plain, "behind DistributedDataParallel");
}

TEST(ShardedTies, CheckpointsAreForAnyNumberOfRanks) {
  const std::string path = kolo::broadcast_object(
      (std::filesystem::temp_directory_path() / ("kolo_tied_" + std::to_string(getpid()))).string(),
      0);
  LanguageModel model, resumed, plain, split;
  kolo::ShardedOptimizer optimizer(adam_of(model), model->named_parameters());
  train(model, optimizer, 0, 5);
  kolo::save_checkpoint(path, {.module = model.ptr().get(), .optimizer = &optimizer}, 5);
  train(model, optimizer, 5, 10);

  kolo::ShardedOptimizer again(adam_of(resumed), resumed->named_parameters());
  kolo::load_checkpoint(path, {.module = resumed.ptr().get(), .optimizer = &again});
  train(resumed, again, 5, 10);
  expect_close(resumed, model, "sharded again");

  // The state as one rank would have it, which also saves it.
  kolo::DistributedOptimizer whole(adam_of(plain), plain->named_parameters());
  kolo::load_checkpoint(path, {.module = plain.ptr().get(), .optimizer = &whole});
  kolo::save_checkpoint(path, {.module = plain.ptr().get(), .optimizer = &whole}, 5);
  train(plain, whole, 5, 10);
  expect_close(plain, model, "unsharded");

  kolo::ShardedOptimizer parts(adam_of(split), split->named_parameters());
  kolo::load_checkpoint(path, {.module = split.ptr().get(), .optimizer = &parts});
  train(split, parts, 5, 10);
  expect_close(split, model, "split from the whole");
  kolo::barrier();
  if (kolo::rank() == 0) std::filesystem::remove(path);
}

TEST(ShardedTies, AStateOfATiedWeightIsRefusedWhereItIsTwo) {
  const std::string path = kolo::broadcast_object(
      (std::filesystem::temp_directory_path() / ("kolo_untied_" + std::to_string(getpid())))
          .string(),
      0);
  LanguageModel tied;
  UntiedModel untied;
  AdamW plain(tied->parameters(), 1e-2);  // lists it twice
  train(tied, plain, 0, 1);
  kolo::save_checkpoint(path, {.optimizer = &plain}, 1);
  kolo::ShardedOptimizer sharded(AdamW(untied->parameters(), 0.5), untied->named_parameters());
  for (const torch::Tensor& parameter : untied->parameters())
    parameter.mutable_grad() = torch::ones_like(parameter);
  sharded.step();
  const std::size_t bytes = sharded.state_bytes();
  EXPECT_THAT(message_of([&] { kolo::load_checkpoint(path, {.optimizer = &sharded}); }),
              HasSubstr("rank 0: checkpoint " + path +
                        ": optimizer: parameters that were one when the state was saved are "
                        "several here"));
  EXPECT_EQ(sharded.state_bytes(), bytes) << "as before";
  EXPECT_EQ(sharded.param_groups()[0].options().get_lr(), 0.5);
  if (kolo::rank() == 0) std::filesystem::remove(path);
}

TEST(ShardedTies, AnOptimizerThatListsItTwiceIsTold) {
  LanguageModel model;
  const auto told = HasSubstr(
      "twice; list each parameter once (the parameters() of a module that "
      "registers a weight under two names lists it twice)");
  EXPECT_THAT(message_of([&] {
                kolo::ShardedOptimizer(AdamW(model->parameters(), 1e-2), model->named_parameters());
              }),
              told);
  EXPECT_THAT(message_of([&] {
                kolo::DistributedOptimizer(AdamW(model->parameters(), 1e-2),
                                           model->named_parameters());
              }),
              told);
}

}  // namespace
