// Steps under DistributedDataParallel that are not one forward and one backward: penalties of
// gradients, several forwards, a backward inside another one, LBFGS, a module that has changed. On
// all ranks at once.
#include "tests/support/ddp_ranks.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::test::mean_of_ranks;
using kolo::test::message_of;
using kolo::test::mine;
using testing::AllOf;
using testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kDouble = torch::kFloat64;

torch::nn::Sequential network_of(std::uint64_t seed) {
  torch::manual_seed(seed);
  torch::nn::Sequential network(torch::nn::Linear(4, 8), torch::nn::Tanh(),
                                torch::nn::Linear(8, 1));
  network->to(kDouble);
  return network;
}

/// The batch of all ranks, and this rank's part.
struct Batch {
  torch::Tensor all, part;
  explicit Batch(std::uint64_t seed, std::int64_t features = 4) {
    torch::manual_seed(seed);
    all = torch::randn({4 * kolo::size(), features}, kDouble);
    part = all.slice(0, kolo::rank(), all.size(0), kolo::size()).contiguous();
  }
};

void expect_same_gradients(const torch::nn::Module& one, const torch::nn::Module& other) {
  for (const auto& item : one.named_parameters()) {
    EXPECT_TRUE(torch::allclose(item.value().grad(), other.named_parameters()[item.key()].grad(),
                                1e-9, 1e-11))
        << item.key();
  }
}

TEST(DdpBackward, AGraphOfGradientsIsRefusedByName) {
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(network_of(1), {.gradient_as_bucket_view = view});
    const Batch batch(2);
    const auto loss = [&] { return ddp.forward(batch.part).pow(2).mean(); };
    EXPECT_THAT(message_of([&] { loss().backward({}, true, /*create_graph=*/true); }),
                AllOf(HasSubstr("the gradient of parameter '2."), HasSubstr("create_graph"),
                      HasSubstr("torch::autograd::grad()")));
    ddp.zero_grad();
    auto alone = network_of(1);
    loss().backward();
    alone->forward(batch.all).pow(2).mean().backward();
    expect_same_gradients(*ddp.module(), *alone);
  }
}

TEST(DdpBackward, APenaltyOfGradientsEqualsOneProcess) {
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(network_of(1), {.gradient_as_bucket_view = view});
    auto alone = network_of(1);
    const Batch batch(2);
    const auto penalty = [](auto&& forward, const torch::Tensor& rows) {
      const auto input = rows.clone().requires_grad_();
      const auto slope = torch::autograd::grad({forward(input).sum()}, {input}, {}, true,
                                               /*create_graph=*/true)[0];
      return (slope.norm(2, 1) - 1).pow(2).mean() + forward(rows).pow(2).mean();
    };
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      alone->zero_grad();
      penalty([&](const auto& rows) { return ddp.forward(rows); }, batch.part).backward();
      penalty([&](const auto& rows) { return alone->forward(rows); }, batch.all).backward();
      for (const auto& item : alone->named_parameters()) {
        if (!item.value().grad().defined()) continue;
        EXPECT_TRUE(torch::allclose(item.value().grad(), ddp->named_parameters()[item.key()].grad(),
                                    1e-9, 1e-11))
            << item.key();
      }
    }
  }
}

/// As a siamese network is trained, with rank 0's statistics on all ranks.
TEST(DdpBackward, TwoForwardsWithBatchNormBeforeOneBackward) {
  struct ScoreImpl : torch::nn::Module {
    torch::nn::Linear layer{register_module("layer", torch::nn::Linear(4, 3))};
    torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(3))};
    torch::Tensor forward(const torch::Tensor& input) { return norm(layer(input)); }
  };
  const auto model = std::make_shared<ScoreImpl>();
  DistributedDataParallel ddp(model, {.broadcast_buffers = true});
  for (int step = 0; step < 3; ++step) {
    ddp.zero_grad();
    torch::manual_seed(static_cast<std::uint64_t>(10 * step + kolo::rank()));
    const auto one = ddp.forward(torch::randn({8, 4}));
    const auto other = ddp.forward(torch::randn({8, 4}));
    EXPECT_EQ(message_of([&] { (one - other).pow(2).mul(one).sum().backward(); }), "(no error)");
    const auto gradient = model->layer->weight.grad();
    EXPECT_TRUE(torch::equal(kolo::broadcast(gradient, 0), gradient));
  }
  ddp.forward(torch::zeros({8, 4}));
  EXPECT_EQ(model->norm->num_batches_tracked.item<std::int64_t>(), 7);
}

TEST(DdpBackward, TheModulesOwnForwardIsAveragedAfterNoSync) {
  for (const bool view : {false, true}) {
    DistributedDataParallel ddp(torch::nn::Linear(2, 1), {.gradient_as_bucket_view = view});
    const auto input = torch::full({1, 2}, mine());
    const auto& weight = ddp.module()->weight;
    const auto expect = [&](const torch::Tensor& loss, double gradient, const char* what) {
      ddp.zero_grad();
      loss.backward();
      EXPECT_NEAR(weight.grad()[0][0].item<double>(), gradient, 1e-5) << what;
    };
    torch::Tensor later;
    {
      const auto guard = ddp.no_sync();
      expect(ddp.forward(input).sum(), mine(), "inside");
      expect(ddp.module()->forward(input).sum(), mine(), "the module's own, inside");
      expect(ddp.forward(input).sum(), mine(), "inside again");
    }
    for (int step = 0; step < 2; ++step)
      expect(ddp.module()->forward(input).sum(), mean_of_ranks(), "the module's own");
    {
      const auto guard = ddp.no_sync();
      later = (ddp.forward(input) + ddp.forward(input)).sum();
    }
    expect(later, 2 * mine(), "forwards inside, backward outside");
    expect(ddp.module()->forward(input).sum(), mean_of_ranks(), "the module's own after it");
    expect(ddp.forward(input).sum(), mean_of_ranks(), "outside");
  }
}

TEST(DdpBackward, ABackwardThroughAForwardInEvalOutsideOfNoSyncIsAveraged) {
  for (const bool finds_unused : {false, true}) {
    for (const bool trains : {false, true}) {
      SCOPED_TRACE(testing::Message() << finds_unused << trains);
      DistributedDataParallel ddp(torch::nn::Linear(2, 1),
                                  {.find_unused_parameters = finds_unused});
      ddp.train(trains);
      const auto input = torch::full({1, 2}, mine());
      const auto inside = [&] {
        const auto guard = ddp.no_sync();
        return ddp.forward(input).sum();
      };
      const auto first = ddp.forward(input).sum();
      (first + inside()).backward();
      EXPECT_NEAR(ddp.module()->weight.grad()[0][0].item<double>(), 2 * mean_of_ranks(), 1e-5);
      // An evaluation on this rank alone has no part in the next step.
      ddp.zero_grad();
      ddp.eval();
      torch::Tensor kept;
      if (kolo::rank() == 0) kept = ddp.forward(input);
      ddp.train(trains);
      inside().backward();
      EXPECT_NEAR(ddp.module()->weight.grad()[0][0].item<double>(), mine(), 1e-5);
    }
  }
}

TEST(DdpBackward, AParameterThatIsUnfrozenLaterIsNamed) {
  torch::nn::Linear layer(2, 1);
  layer->weight.set_requires_grad(false);
  {
    DistributedDataParallel ddp(layer);
    ddp.forward(torch::ones({1, 2})).sum().backward();
    layer->weight.set_requires_grad(true);
    EXPECT_THAT(message_of([&] {
                  ddp.forward(torch::ones({1, 2}));
                }),
                AllOf(HasSubstr("parameter 'weight' requires a gradient, but did not"),
                      HasSubstr("make a new DistributedDataParallel")));
    const torch::NoGradGuard no_grad;
    ddp.forward(torch::ones({1, 2}));  // has no gradients
  }
  DistributedDataParallel ddp(layer);
  (ddp.forward(torch::ones({1, 2})).sum() * mine()).backward();
  EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), mean_of_ranks(), 1e-5);
}

TEST(DdpBackward, AParameterThatIsRegisteredLaterIsNamed) {
  struct GrowingImpl : torch::nn::Module {
    torch::nn::Linear first{register_module("first", torch::nn::Linear(2, 2))}, second{nullptr};
    torch::Tensor forward(const torch::Tensor& input) {
      return second.is_empty() ? first(input) : second(first(input));
    }
  };
  const auto model = std::make_shared<GrowingImpl>();
  DistributedDataParallel ddp(model);
  ddp.forward(torch::ones({1, 2})).sum().backward();
  model->second = model->register_module("second", torch::nn::Linear(2, 2));
  EXPECT_THAT(message_of([&] {
                ddp.forward(torch::ones({1, 2}));
              }),
              HasSubstr("parameter 'second.weight' was registered since"));
  for (auto& parameter : model->second->parameters()) parameter.set_requires_grad(false);
  ddp.forward(torch::ones({1, 2})).sum().backward();
}

TEST(DdpBackward, LbfgsWithTheMeanLossEqualsOneProcess) {
  const auto options = torch::optim::LBFGSOptions(1.0).max_iter(10).line_search_fn("strong_wolfe");
  DistributedDataParallel ddp(network_of(3));
  auto alone = network_of(3);
  torch::optim::LBFGS optimizer(ddp.parameters(), options), reference(alone->parameters(), options);
  const Batch batch(9);
  const auto loss_of = [](const torch::Tensor& output, const torch::Tensor& rows) {
    return torch::mse_loss(output, 3 * torch::sin(2 * rows.sum(1, true)));
  };
  for (int step = 0; step < 4; ++step) {
    optimizer.step([&] {
      optimizer.zero_grad();
      const auto loss = loss_of(ddp.forward(batch.part), batch.part);
      loss.backward();
      return kolo::allreduce(loss, {.op = kolo::ReduceOp::kAverage});
    });
    reference.step([&] {
      reference.zero_grad();
      const auto loss = loss_of(alone->forward(batch.all), batch.all);
      loss.backward();
      return loss;
    });
  }
  for (const auto& item : alone->named_parameters()) {
    EXPECT_TRUE(torch::allclose(ddp->named_parameters()[item.key()], item.value(), 1e-4, 1e-5))
        << item.key();
  }
}

/// The hook in the documentation of ddp_reducer.h.
TEST(DdpBackward, TheHookOfTheHeaderGivesWhatNoHookGives) {
  DistributedDataParallel plain(network_of(4)), hooked(network_of(4));
  hooked.register_comm_hook([](const kolo::GradBucket& bucket) {
    auto work = kolo::allreduce_async_(bucket.buffer,
                                       {.op = kolo::ReduceOp::kAverage, .name = bucket.name});
    return [work]() mutable { return work.wait(); };
  });
  const Batch batch(5);
  for (int step = 0; step < 2; ++step) {
    plain.forward(batch.part).pow(2).mean().backward();
    hooked.forward(batch.part).pow(2).mean().backward();
    expect_same_gradients(*hooked.module(), *plain.module());
  }
}

/// Discards what `layer` computes, and computes it again in its own backward.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               torch::nn::Linear* layer) {
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    context->save_for_backward({input});
    const torch::NoGradGuard no_grad;
    return torch::tanh((*layer)(input));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* const layer = reinterpret_cast<torch::nn::Linear*>(context->saved_data["layer"].toInt());
    const auto input = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode grad_mode(true);
    torch::tanh((*layer)(input)).backward(gradients[0]);
    return {input.grad(), {}};
  }
};

struct DeepImpl : torch::nn::Module {
  bool checkpoints = true;
  bool shares = false;  ///< the second and the third layer are used twice
  torch::nn::Linear first{register_module("first", torch::nn::Linear(4, 4))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(4, 4))};
  torch::nn::Linear third{register_module("third", torch::nn::Linear(4, 4))};
  torch::nn::Linear spare{register_module("spare", torch::nn::Linear(4, 4))};
  explicit DeepImpl(bool with_spare) {
    if (!with_spare) {
      for (auto& parameter : spare->parameters()) parameter.set_requires_grad(false);
    }
    to(kDouble);
  }
  torch::Tensor apply(const torch::Tensor& input, torch::nn::Linear& layer) const {
    return checkpoints ? Checkpointed::apply(input, &layer) : torch::tanh(layer(input));
  }
  /// Checkpointed layers come first, in the middle and last in backward; layer `plain` is not
  /// checkpointed.
  torch::Tensor forward(const torch::Tensor& input, int plain) {
    torch::Tensor rows = input;
    if (shares) rows = apply(apply(rows, second), third);
    int number = 0;
    for (torch::nn::Linear* layer : {&first, &second, &third}) {
      rows = number++ == plain ? torch::tanh((*layer)(rows)) : apply(rows, *layer);
    }
    return rows;
  }
};

void expect_same_layers(const DeepImpl& model, const DeepImpl& alone, int step) {
  for (const auto& layer : {"first", "second", "third"}) {
    const std::string name = std::string(layer) + ".weight";
    EXPECT_TRUE(torch::allclose(model.named_parameters()[name].grad(),
                                alone.named_parameters()[name].grad(), 1e-9, 1e-11))
        << name << ", step " << step;
  }
}

TEST(DdpBackward, ABackwardInsideAnotherIsAPartOfIt) {
  for (const bool with_spare : {false, true}) {
    for (int plain = 0; plain < 3; ++plain) {
      SCOPED_TRACE(testing::Message() << "spare " << with_spare << ", plain " << plain);
      torch::manual_seed(7);
      const auto model = std::make_shared<DeepImpl>(with_spare);
      torch::manual_seed(7);
      const auto alone = std::make_shared<DeepImpl>(with_spare);
      alone->checkpoints = false;
      DistributedDataParallel ddp(model, {.static_graph = with_spare});
      const Batch batch(8);
      // A function whose inputs require no gradient is not in the graph.
      const auto leaf = [](const torch::Tensor& rows) { return rows.clone().requires_grad_(); };
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        alone->zero_grad();
        ddp.forward(leaf(batch.part), plain).pow(2).mean().backward();
        alone->forward(leaf(batch.all), plain).pow(2).mean().backward();
        expect_same_layers(*model, *alone, step);
        EXPECT_EQ(ddp.stats().synchronized_backwards, step + 1);
      }
    }
  }
}

/// Also with gradients from inner backwards only (plain is -1), and from none (2).
TEST(DdpBackward, AStaticGraphExpectsSeveralGradientsOfAParameter) {
  for (const bool views : {true, false}) {
    for (int plain = -1; plain < 3; ++plain) {
      SCOPED_TRACE(testing::Message() << "views " << views << ", plain " << plain);
      torch::manual_seed(7);
      const auto model = std::make_shared<DeepImpl>(true);
      torch::manual_seed(7);
      const auto alone = std::make_shared<DeepImpl>(true);
      alone->checkpoints = false;
      model->shares = alone->shares = true;
      DistributedDataParallel ddp(
          model, {.bucket_cap_mb = 1e-4, .gradient_as_bucket_view = views, .static_graph = true});
      const auto leaf = [](const torch::Tensor& rows) { return rows.clone().requires_grad_(); };
      const Batch batch(8);
      for (int step = 0; step < 5; ++step) {
        if (step != 3) {  // it adds to the gradients of the step before
          ddp.zero_grad(step % 2 == 0);
          alone->zero_grad(step % 2 == 0);
        }
        if (step == 2) {
          const auto guard = ddp.no_sync();
          ddp.forward(leaf(batch.part), plain).pow(2).mean().backward();
          alone->forward(leaf(batch.all), plain).pow(2).mean().backward();
        }
        ddp.forward(leaf(batch.part), plain).pow(2).mean().backward();
        alone->forward(leaf(batch.all), plain).pow(2).mean().backward();
        expect_same_layers(*model, *alone, step);
        EXPECT_EQ(ddp.stats().synchronized_backwards, step + 1);
      }
    }
  }
}

/// Kolo has aborted after it, so tests/torch.cmake runs it by itself.
TEST(DdpEnd, DISABLED_SeveralGradientsOfAParameterNeedAStaticGraph) {
  const auto model = std::make_shared<DeepImpl>(false);
  model->shares = true;
  DistributedDataParallel ddp(model);
  const auto input = torch::ones({1, 4}, kDouble).requires_grad_();
  EXPECT_THAT(message_of([&] { ddp.forward(input, 0).sum().backward(); }),
              HasSubstr("set static_graph"));
}

TEST(DdpBackward, OneInsideAnotherThatBringsNothingMoreIsNamed) {
  const auto model = std::make_shared<DeepImpl>(true);
  DistributedDataParallel ddp(model);
  const auto input = torch::ones({1, 4}, kDouble).requires_grad_();
  const auto step = [&] { ddp.forward(input, /*plain=*/-1).sum().backward(); };
  for (const bool checkpoints : {true, false}) {
    model->checkpoints = checkpoints;
    EXPECT_THAT(message_of(step),
                HasSubstr("gave no gradient to parameter 'spare.weight' on rank"));
  }
}

/// Fails in backward as if another rank had failed, after an inner backward.
struct Failing : torch::autograd::Function<Failing> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& input) {
    return input.clone();
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    if (kolo::rank() + 1 == kolo::size()) kolo::abort("the disk is full");
    kolo::allreduce(gradients[0], {.name = "within backward"});
    return gradients;
  }
};

/// Kolo has aborted after it, so tests/torch.cmake runs it by itself.
TEST(DdpEnd, DISABLED_AFailureBehindAnInnerBackwardIsNotBlamedOnIt) {
  const auto model = std::make_shared<DeepImpl>(true);
  DistributedDataParallel ddp(model);
  const auto input = torch::ones({1, 4}, kDouble).requires_grad_();
  const auto forward = [&] { return ddp.forward(Failing::apply(input), /*plain=*/-1); };
  EXPECT_THAT(message_of([&] { forward().sum().backward(); }), HasSubstr("the disk is full"));
  EXPECT_THAT(message_of(forward), HasSubstr("the disk is full"));
}

TEST(DdpBackward, FindingUnusedParametersDoesNotGoWithABackwardInside) {
  const auto model = std::make_shared<DeepImpl>(false);
  DistributedDataParallel ddp(model, {.find_unused_parameters = true});
  const auto input = torch::ones({1, 4}, kDouble).requires_grad_();
  EXPECT_THAT(message_of([&] { ddp.forward(input, 0).sum().backward(); }),
              HasSubstr("activation checkpointing"));
}

}  // namespace
