// What a ShardedOptimizer refuses, with which words. On all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace {

using kolo::ShardedOptimizer;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::SGD;

std::string error_of(const kolo::ShardedOptimizerOptions& options) {
  torch::nn::Linear model(3, 2);
  return message_of(
      [&] { ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters(), options); });
}

TEST(ShardedOptimizerErrors, OptionsThatDoNotFit) {
  EXPECT_THAT(error_of({.op = kolo::ReduceOp::kAdasum}), HasSubstr("op is adasum"));
  EXPECT_THAT(error_of({.gradient_predivide_factor = 0}),
              HasSubstr("gradient_predivide_factor is 0"));
  EXPECT_THAT(error_of({.op = kolo::ReduceOp::kSum, .gradient_predivide_factor = 2}),
              HasSubstr("op must be kAverage"));
  EXPECT_THAT(error_of({.bucket_cap_mb = 0}), HasSubstr("bucket_cap_mb is 0"));
  EXPECT_THAT(error_of({.groups = std::vector<std::vector<std::string>>{{"nobody"}}}),
              HasSubstr("'nobody' of group 0 is no parameter"));
  EXPECT_EQ(error_of({}), "(no error)");
}

TEST(ShardedOptimizerErrors, RefusesLbfgsByName) {
  torch::nn::Linear model(3, 2);
  EXPECT_THAT(message_of([&] {
                ShardedOptimizer(torch::optim::LBFGS(model->parameters()),
                                 model->named_parameters());
              }),
              HasSubstr("LBFGS"));
}

TEST(ShardedOptimizerErrors, AnOptimizerThatHasStepped) {
  torch::nn::Linear model(3, 2);
  torch::optim::AdamW used(model->parameters(), 0.1);
  model->forward(torch::ones({1, 3})).sum().backward();
  used.step();
  EXPECT_THAT(message_of([&] { ShardedOptimizer(std::move(used), model->named_parameters()); }),
              HasSubstr("has state of its own already"));
}

TEST(ShardedOptimizerErrors, ParametersThatItCannotSplit) {
  torch::nn::Linear model(3, 2), other(3, 2);
  EXPECT_THAT(message_of([&] {
                ShardedOptimizer(SGD(model->parameters(), 0.1), other->named_parameters());
              }),
              HasSubstr("parameter 0 of group 0 of the optimizer is not among the named"));
  auto expanded = torch::zeros({1}).expand({4}).detach().requires_grad_();
  EXPECT_THAT(message_of([&] {
                ShardedOptimizer(SGD({expanded}, 0.1), kolo::NamedTensors{{"wide", expanded}});
              }),
              AllOf(HasSubstr("'wide'"), HasSubstr("contiguous()")));
  kolo::DistributedOptimizer owner(SGD(model->parameters(), 0.1), model->named_parameters());
  EXPECT_THAT(message_of([&] {
                ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters());
              }),
              AllOf(HasSubstr("'bias'"), HasSubstr("is in a DistributedOptimizer")));
}

TEST(ShardedOptimizerErrors, RanksThatDifferAreToldSo) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  const bool last = kolo::rank() == kolo::size() - 1;
  torch::nn::Linear model(last ? 4 : 3, 2);
  EXPECT_THAT(message_of([&] {
                ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters());
              }),
              AllOf(HasSubstr("'weight' of group 0: Float [2, 3]"), HasSubstr("[2, 4]"),
                    HasSubstr("on rank " + std::to_string(kolo::size() - 1))));
}

TEST(ShardedOptimizerErrors, SparseGradients) {
  torch::nn::Embedding model(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  model->forward(torch::tensor({1, 2})).sum().backward();
  EXPECT_THAT(message_of([&] { optimizer.step(); }),
              AllOf(HasSubstr("'weight'"), HasSubstr("sparse")));
}

TEST(ShardedOptimizerErrors, SavesNothingButTheWhole) {
  torch::nn::Linear model(3, 2), other(2, 2);
  ShardedOptimizer optimizer(SGD(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5)),
                             model->named_parameters());
  std::ostringstream stream;
  EXPECT_THAT(message_of([&] { torch::save(optimizer, stream); }), HasSubstr("consolidate()"));
  model->forward(torch::ones({1, 3})).sum().backward();
  optimizer.step();
  optimizer.consolidate();
  if (kolo::rank() == 0) torch::save(optimizer, stream);
  optimizer.step();
  EXPECT_THAT(message_of([&] { torch::save(optimizer, stream); }), HasSubstr("consolidate()"));
  const std::string bytes = kolo::broadcast_object(stream.str(), 0);
  ShardedOptimizer misfit(SGD(other->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5)),
                          other->named_parameters());
  std::istringstream input(bytes);
  if (kolo::size() > 2) return;  // a rank without a piece of the weight takes no state of it
  EXPECT_THAT(message_of([&] { torch::load(misfit, input); }),
              AllOf(HasSubstr("the state of 'weight'"), HasSubstr("[2, 3]"), HasSubstr("[2, 2]")));
}

TEST(ShardedOptimizerErrors, ARankOutsideItsProcessSet) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  const kolo::ProcessSet set = kolo::add_process_set({0});
  if (kolo::rank() > 0) {
    EXPECT_THAT(error_of({.process_set = set}), HasSubstr("is not in the process set of ranks 0"));
  }
  kolo::remove_process_set(set);
}

}  // namespace
