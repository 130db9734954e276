// Refusals of a ShardedOptimizer, and their texts. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/warnings.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using kolo::ShardedOptimizer;
using kolo::test::message_of;
using kolo::test::Warnings;
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
              HasSubstr("ShardedOptimizer: groups: 'nobody' of group 0 is no parameter"));
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

TEST(ShardedOptimizerErrors, ItsBaseClassesZeroGradIsWarnedOf) {
  torch::nn::Linear model(3, 2);
  kolo::ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  const auto warnings_of = [&](const auto& zero_grad) {
    Warnings warnings;
    for (int step = 0; step < 2; ++step) {
      zero_grad();
      model->forward(torch::ones({1, 3})).sum().backward();
      optimizer.step();
    }
    return warnings.all;
  };
  torch::optim::Optimizer& base = optimizer;
  const auto nothing = testing::IsEmpty();
  EXPECT_THAT(warnings_of([&] { optimizer.zero_grad(); }), nothing);
  EXPECT_THAT(warnings_of([&] { optimizer.zero_grad(false); }), nothing);
  EXPECT_THAT(warnings_of([&] { model->zero_grad(); }), nothing);
  EXPECT_THAT(warnings_of([] {}), nothing) << "gradients that add up on purpose";
  optimizer.zero_grad();
  EXPECT_THAT(warnings_of([&] { base.zero_grad(); }),
              testing::ElementsAre(HasSubstr("zero_grad()")));
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
              AllOf(HasSubstr("'weight'"), HasSubstr("is reduced already")));
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
  torch::nn::Linear one(torch::nn::LinearOptions(3, 2).bias(!last));
  EXPECT_THAT(
      message_of([&] { ShardedOptimizer(SGD(one->parameters(), 0.1), one->named_parameters()); }),
      AllOf(HasSubstr("parameter 1 is 'bias' of group 0: Float [2]"),
            HasSubstr("on rank 0, but no parameter on rank " + std::to_string(kolo::size() - 1))));
}

/// The error of `make` on the last rank; the other ranks make a valid optimizer.
template <class Make>
std::string error_if_last(const Make& make) {
  torch::nn::Linear model(3, 2);
  return message_of([&] {
    if (kolo::rank() == kolo::size() - 1) {
      make(model);
    } else {
      ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters());
    }
  });
}

TEST(ShardedOptimizerErrors, OptionsThatDifferAreNamedByAll) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  const std::string who = " on rank " + std::to_string(kolo::size() - 1) + ";";
  const auto with = [](const kolo::ShardedOptimizerOptions& options) {
    return error_if_last([&](torch::nn::Linear& model) {
      ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters(), options);
    });
  };
  EXPECT_THAT(with({.op = kolo::ReduceOp::kSum}),
              HasSubstr("op is average on rank 0, but sum" + who));
  EXPECT_THAT(with({.gradient_predivide_factor = 2.5}),
              HasSubstr("gradient_predivide_factor is 1 on rank 0, but 2.5" + who));
  EXPECT_THAT(with({.gradients_are_reduced = true}),
              HasSubstr("gradients_are_reduced is false on rank 0, but true" + who));
  EXPECT_THAT(with({.bucket_cap_mb = 10}),
              HasSubstr("bucket_cap_mb is 25 on rank 0, but 10" + who));
  EXPECT_THAT(with({.groups = 1}), HasSubstr("groups is [] on rank 0, but [[0, 1]]" + who));
}

TEST(ShardedOptimizerErrors, SparseGradients) {
  torch::nn::Embedding model(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  model->forward(torch::tensor({1, 2})).sum().backward();
  EXPECT_THAT(message_of([&] { optimizer.step(); }),
              AllOf(HasSubstr("'weight'"), HasSubstr("sparse")));
}

TEST(ShardedOptimizerErrors, ASparseGradientOfOneRankIsNamedByAll) {
  const int last = kolo::size() - 1;
  torch::nn::Embedding model(torch::nn::EmbeddingOptions(5, 2).sparse(kolo::rank() == last));
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  model->forward(torch::tensor({1, 2})).sum().backward();
  EXPECT_THAT(message_of([&] { optimizer.step(); }),
              AllOf(HasSubstr("'weight' is sparse"), HasSubstr("rank " + std::to_string(last))));
  optimizer.zero_grad();
  optimizer.step();
}

TEST(ShardedOptimizerErrors, WhatOneRankRefusesIsNamedByAll) {
  const auto told = [](const std::string& what) {
    return AllOf(HasSubstr("rank " + std::to_string(kolo::size() - 1) + ": "), HasSubstr(what));
  };
  const auto with = [](const kolo::ShardedOptimizerOptions& options) {
    return error_if_last([&](torch::nn::Linear& model) {
      ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters(), options);
    });
  };
  EXPECT_THAT(with({.op = kolo::ReduceOp::kAdasum}), told("op is adasum"));
  EXPECT_THAT(with({.gradient_predivide_factor = 0}), told("gradient_predivide_factor is 0"));
  EXPECT_THAT(with({.bucket_cap_mb = 0}), told("bucket_cap_mb is 0; it is above 0"));
  EXPECT_THAT(with({.groups = 0}), told("groups: 0 groups are not possible"));
  EXPECT_THAT(error_if_last([](torch::nn::Linear& model) {
                ShardedOptimizer(torch::optim::LBFGS(model->parameters()),
                                 model->named_parameters());
              }),
              told("LBFGS looks at all parameters at once"));
  EXPECT_THAT(error_if_last([](torch::nn::Linear& model) {
                SGD used(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
                model->forward(torch::ones({1, 3})).sum().backward();
                used.step();
                ShardedOptimizer(std::move(used), model->named_parameters());
              }),
              told("has state of its own already"));
  EXPECT_THAT(error_if_last([](torch::nn::Linear& model) {
                ShardedOptimizer(SGD(model->parameters(), 0.1),
                                 kolo::NamedTensors{{"weight", model->weight}});
              }),
              told("parameter 1 of group 0 of the optimizer is not among the named parameters"));
  EXPECT_THAT(
      error_if_last([](torch::nn::Linear& model) {
        ShardedOptimizer(SGD({model->weight, model->weight}, 0.1), model->named_parameters());
      }),
      told("lists 'weight' twice"));
  EXPECT_THAT(error_if_last([](torch::nn::Linear&) {
                auto w = torch::ones({2}, torch::TensorOptions(torch::kMeta).requires_grad(true));
                ShardedOptimizer(SGD({w}, 0.1), kolo::NamedTensors{{"w", w}});
              }),
              told("'w' is on meta, but kolo takes"));
}

TEST(ShardedOptimizerErrors, AGroupThatOneRankRefusesIsNamedByAll) {
  const bool last = kolo::rank() == kolo::size() - 1;
  torch::nn::Linear model(3, 2);
  auto added = torch::ones({2}, torch::requires_grad());
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  EXPECT_THAT(message_of([&] {
                optimizer.add_param_group(
                    torch::optim::OptimizerParamGroup({last ? model->weight : added}));
              }),
              AllOf(HasSubstr("rank " + std::to_string(kolo::size() - 1)),
                    HasSubstr("lists 'weight' twice, the second time as 'group1.parameter0'")));
  optimizer.add_param_group(torch::optim::OptimizerParamGroup({added}));
  (model->forward(torch::ones({1, 3})).sum() + added.sum()).backward();
  optimizer.step();
  EXPECT_NEAR(added[0].item<double>(), 0.9, 1e-6);
}

TEST(ShardedOptimizerErrors, AnotherReducerOfOneRankIsNamedByAll) {
  const int last = kolo::size() - 1;
  torch::nn::Linear model(3, 2);
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  {
    const auto alone = last == 0 ? kolo::ProcessSet() : kolo::add_process_set({last});
    std::optional<kolo::DistributedOptimizer<SGD>> owner;
    if (kolo::rank() == last) {
      owner.emplace(SGD(model->parameters(), 0.1), model->named_parameters(),
                    kolo::DistributedOptimizerOptions{.process_set = alone});
    }
    EXPECT_THAT(message_of([&] { optimizer.step(); }),
                AllOf(HasSubstr("rank " + std::to_string(last) + ": parameter 'weight'"),
                      HasSubstr("is reduced already"), HasSubstr("gradients_are_reduced")));
  }
  optimizer.step();
}

/// The ShardedOptimizer was made first, so it could not know.
TEST(ShardedOptimizerErrors, GradientsThatOthersReduceSinceItWasMade) {
  torch::nn::Linear model(3, 2);
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  const auto step = [&](auto&& forward) {
    optimizer.zero_grad();
    forward(torch::ones({1, 3})).sum().backward();
    return message_of([&] { optimizer.step(); });
  };
  {
    kolo::DistributedDataParallel ddp(model);
    EXPECT_THAT(
        step([&](const auto& rows) { return ddp.forward(rows); }),
        AllOf(HasSubstr("'weight' is reduced already"), HasSubstr("gradients_are_reduced")));
  }
  EXPECT_EQ(step([&](const auto& rows) { return model->forward(rows); }), "(no error)");
  ShardedOptimizer other(SGD(model->parameters(), 0.1), model->named_parameters(),
                         {.gradients_are_reduced = true});
  kolo::DistributedDataParallel ddp(model);
  ddp.forward(torch::ones({1, 3})).sum().backward();
  EXPECT_EQ(message_of([&] { other.step(); }), "(no error)");
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

TEST(ShardedOptimizerErrors, SavesNoStateFromBeforeALoad) {
  torch::nn::Linear model(3, 2);
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.5);
  ShardedOptimizer optimizer(SGD(model->parameters(), options), model->named_parameters());
  model->forward(torch::ones({1, 3})).sum().backward();
  optimizer.step();
  optimizer.consolidate();
  std::ostringstream stream;
  if (kolo::rank() == 0) torch::save(optimizer, stream);
  std::istringstream input(kolo::broadcast_object(stream.str(), 0));
  torch::load(optimizer, input);
  EXPECT_THAT(message_of([&] { torch::save(optimizer, stream); }), HasSubstr("consolidate()"));
}

TEST(ShardedOptimizerErrors, AParameterThatIsListedTwice) {
  torch::nn::Linear model(3, 2);
  EXPECT_THAT(
      message_of([&] {
        ShardedOptimizer(SGD({model->weight, model->weight}, 0.1), model->named_parameters());
      }),
      HasSubstr("lists 'weight' twice"));
  EXPECT_THAT(message_of([&] {
                ShardedOptimizer(SGD({model->weight}, 0.1),
                                 kolo::NamedTensors{{"one", model->weight}, {"one", model->bias}});
              }),
              HasSubstr("two named parameters are called 'one'"));
  ShardedOptimizer optimizer(SGD({model->weight}, 0.1), model->named_parameters());
  EXPECT_THAT(message_of([&] {
                optimizer.add_param_group(torch::optim::OptimizerParamGroup({model->weight}));
              }),
              HasSubstr("lists 'weight' twice, the second time as 'group1.parameter0'"));
}

/// Cannot write its state on the last rank.
struct Unwritable : SGD {
  using SGD::SGD;
  void save(torch::serialize::OutputArchive& archive) const override {
    if (kolo::rank() == kolo::size() - 1) throw std::runtime_error("the pencil broke");
    SGD::save(archive);
  }
};

TEST(ShardedOptimizerErrors, ARankThatCannotGiveItsStateIsToldToAll) {
  torch::nn::Linear model(3, 2);
  ShardedOptimizer optimizer(Unwritable(model->parameters(), torch::optim::SGDOptions(0.1)),
                             model->named_parameters());
  const std::string last = "rank " + std::to_string(kolo::size() - 1);
  EXPECT_THAT(message_of([&] { optimizer.consolidate(0); }),
              AllOf(HasSubstr(last), HasSubstr("the pencil broke")));
  const auto path = std::filesystem::temp_directory_path() / "kolo_unwritable.pt";
  EXPECT_THAT(message_of([&] {
                kolo::save_checkpoint(path, {.module = model.get(), .optimizer = &optimizer}, 1);
              }),
              AllOf(HasSubstr(last), HasSubstr("the pencil broke")));
}

TEST(ShardedOptimizerErrors, NotANumberStaysInTheNorm) {
  for (const double norm_type : {2.0, std::numeric_limits<double>::infinity()}) {
    torch::nn::Linear model(3, 2);
    ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
    model->forward(torch::ones({1, 3})).sum().backward();
    if (kolo::rank() == 0) {
      model->weight.mutable_grad()[0][0] = std::numeric_limits<float>::quiet_NaN();
    }
    EXPECT_TRUE(std::isnan(optimizer.clip_grad_norm(1.0, norm_type))) << norm_type;
    optimizer.step();
    EXPECT_TRUE(torch::isnan(model->weight).all().item<bool>()) << norm_type;
  }
}

TEST(ShardedOptimizerErrors, ARankOutsideItsProcessSet) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  const kolo::ProcessSet set = kolo::add_process_set({0});
  if (kolo::rank() > 0) {
    EXPECT_THAT(error_of({.process_set = set}), HasSubstr("is not in the process set of ranks 0"));
  }
  kolo::remove_process_set(set);
}

TEST(ShardedOptimizerErrors, AParameterThatIsPutIntoAGroupByHand) {
  torch::nn::Linear model(3, 2), other(3, 2);
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  optimizer.param_groups()[0].params().push_back(other->weight);
  EXPECT_THAT(message_of([&] { optimizer.step(); }),
              AllOf(HasSubstr("group 0 has"), HasSubstr("by add_param_group()")));
}

}  // namespace
