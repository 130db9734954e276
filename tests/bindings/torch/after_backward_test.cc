// Gradients of a DistributedOptimizer's parameters after backward(): what a training loop finds
// there, and what it may do with them before step(). On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace kolo::test;
using testing::AllOf;
using testing::HasSubstr;

torch::nn::Sequential network() {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 3));
  net->to(torch::kFloat64);
  return net;
}

/// Ten steps; `change` alters the gradients before each. One parameter is unused.
template <class Change>
void expect_as_in_one_process(bool set_to_none, const Change& change) {
  auto shared = network();
  auto alone = network();
  auto unused = torch::ones({2}, kLeaf);
  auto named = kolo::NamedTensors(shared->named_parameters().pairs());
  named.emplace_back("unused", unused);
  auto listed = shared->parameters();
  listed.push_back(unused);
  kolo::DistributedOptimizer optimizer(torch::optim::AdamW(listed, 1e-2), named);
  torch::optim::AdamW reference(alone->parameters(), 1e-2);
  for (int step = 0; step < 10; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + step));
    const auto input = torch::randn({2 * kolo::size(), 6}, torch::kFloat64);
    const auto target = torch::randn({2 * kolo::size(), 3}, torch::kFloat64);
    const int begin = 2 * kolo::rank();
    optimizer.zero_grad(set_to_none);
    torch::mse_loss(shared->forward(input.slice(0, begin, begin + 2)),
                    target.slice(0, begin, begin + 2))
        .backward();
    change(shared->parameters());
    optimizer.step();
    reference.zero_grad(set_to_none);
    torch::mse_loss(alone->forward(input), target).backward();
    change(alone->parameters());
    reference.step();
    for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
      ASSERT_TRUE(torch::allclose(shared->parameters()[i], alone->parameters()[i], 1e-7, 1e-9))
          << "step " << step << ", parameter " << i;
    }
  }
}

TEST(AfterBackward, ClippedReplacedAndScaledGradientsAreThoseOfOneProcess) {
  using Parameters = std::vector<torch::Tensor>;
  for (const bool set_to_none : {true, false}) {
    expect_as_in_one_process(set_to_none, [](const Parameters& parameters) {
      torch::nn::utils::clip_grad_norm_(parameters, 0.05);
    });
    expect_as_in_one_process(set_to_none, [](const Parameters& parameters) {
      for (const auto& parameter : parameters)
        parameter.mutable_grad() = parameter.grad().clamp(-0.01, 0.01);
    });
    expect_as_in_one_process(set_to_none, [](const Parameters& parameters) {
      for (const auto& parameter : parameters) parameter.mutable_grad().mul_(parameter.grad());
    });
  }
}

TEST(AfterBackward, AParameterMayHaveTheNameOfWhatTheOptimizerSends) {
  const auto samples = torch::ones({3}, kLeaf);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({samples}, 0.1),
                                       kolo::NamedTensors{{"samples", samples}},
                                       {.weigh_by_samples = true});
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    optimizer.set_sample_count(1);
    (samples * (kolo::rank() + 1)).sum().backward();
    expect_gradient(samples, ranks_mean());
    optimizer.step();
  }
}

TEST(AfterBackward, GradientsAreReducedWhateverTheOptions) {
  const auto expect = [](const kolo::DistributedOptimizerOptions& options, double value) {
    Weights weights(options);
    for (int step = 0; step < 2; ++step) {
      weights.optimizer.zero_grad(step == 0);
      if (options.weigh_by_samples) weights.optimizer.set_sample_count(kolo::rank() + 1);
      for (int pass = 0; pass < options.backward_passes_per_step; ++pass) weights.all().backward();
      EXPECT_EQ(weights.optimizer.pending(), 0U);
      for (const auto& weight : {weights.a, weights.b, weights.c}) expect_gradient(weight, value);
      // They also stay as they are: nothing is sent again.
      weights.a.mutable_grad().fill_(0.5);
      weights.optimizer.synchronize();
      weights.optimizer.step();
      expect_gradient(weights.a, 0.5);
    }
  };
  double squares = 0;
  for (int rank = 1; rank <= kolo::size(); ++rank) squares += rank * rank;
  expect({}, ranks_mean());
  expect({.op = kolo::ReduceOp::kSum}, ranks_sum());
  expect({.backward_passes_per_step = 3}, 3 * ranks_mean());
  expect({.gradient_predivide_factor = 4}, ranks_mean());
  expect({.compression = kolo::compression::fp16()}, ranks_mean());
  expect({.weigh_by_samples = true}, squares / ranks_sum());
  expect({.groups = 2}, ranks_mean());
  expect({.groups = 1}, ranks_mean());
}

TEST(AfterBackward, EachOfTwoPassesIsReducedAndAdded) {
  for (const auto op : {kolo::ReduceOp::kAverage, kolo::ReduceOp::kSum}) {
    const double unit = op == kolo::ReduceOp::kSum ? ranks_sum() : ranks_mean();
    for (const bool set_to_none : {true, false}) {
      Weights weights({.op = op});
      for (int step = 0; step < 2; ++step) {
        weights.optimizer.zero_grad(set_to_none);
        // Losses of different parts of the model.
        ((weights.a.sum() + weights.b.sum()) * mine()).backward();
        expect_gradient(weights.a, unit);
        expect_gradient(weights.b, unit);
        const auto loss = (weights.a.sum() + weights.c.sum()) * (2 * mine());
        loss.backward({}, /*retain_graph=*/true);
        expect_gradient(weights.a, 3 * unit);
        expect_gradient(weights.c, 2 * unit);
        // Gradients that are changed or replaced in between were reduced, too.
        weights.a.mutable_grad() = weights.a.grad() * 2;
        weights.c.mutable_grad().add_(unit);
        loss.backward();
        expect_gradient(weights.a, 8 * unit);
        expect_gradient(weights.b, unit);
        expect_gradient(weights.c, 5 * unit);
        weights.optimizer.step();
        expect_gradient(weights.a, 8 * unit);
        // Without zero_grad(), the next step's gradients are added.
        weights.all().backward();
        weights.optimizer.step();
        expect_gradient(weights.a, 9 * unit);
        expect_gradient(weights.b, 2 * unit);
      }
    }
  }
}

TEST(AfterBackward, ClearedByTheModuleTheyAreDropped) {
  for (const bool set_to_none : {true, false}) {
    Weights weights;
    (weights.all() * 1000).backward();
    for (const auto& weight : {weights.a, weights.b, weights.c}) {
      if (set_to_none) {
        weight.mutable_grad().reset();
      } else {
        weight.mutable_grad().zero_();
      }
    }
    weights.all().backward();
    weights.optimizer.step();
    expect_gradient(weights.a, ranks_mean());
  }
}

TEST(AfterBackward, RanksThatUseDifferentParametersGoOn) {
  for (int round = 0; round < 3; ++round) {
    Weights weights;
    for (int step = 0; step < 3; ++step) {
      weights.optimizer.zero_grad();
      auto loss = weights.a.sum();
      if (kolo::rank() == 0 && round != 1) loss = loss + weights.b.sum();
      if (is_last() || round == 1) loss = loss + weights.c.sum();
      (loss * mine()).backward();
      // Ranks may call other collectives between backward() and step().
      kolo::allreduce(loss.detach(), {.name = "loss"});
      expect_gradient(weights.a, ranks_mean());
      if (round == 2) {
        weights.optimizer.synchronize();
        expect_gradient(weights.b, 1.0 / kolo::size());
      }
      weights.optimizer.step();
      if (round == 1) {
        EXPECT_FALSE(weights.b.grad().defined());
        expect_gradient(weights.c, ranks_mean());
      } else {
        expect_gradient(weights.b, 1.0 / kolo::size());
        expect_gradient(weights.c, 1.0);
      }
    }
  }
}

TEST(AfterBackward, RanksMayMakeOnePassOfTwo) {
  Weights weights;
  for (int step = 0; step < 3; ++step) {
    weights.optimizer.zero_grad(step == 1);
    if (is_last()) {
      weights.all().backward();
    } else {
      ((weights.a.sum() + weights.b.sum()) * mine()).backward();
      (weights.c.sum() * mine()).backward();
    }
    weights.optimizer.step();
    for (const auto& weight : {weights.a, weights.b, weights.c}) {
      expect_gradient(weight, ranks_mean());
    }
    // Only one rank makes a second pass, for a parameter that no other rank has used.
    weights.optimizer.zero_grad();
    (weights.a.sum() * mine()).backward();
    if (is_last()) weights.b.sum().backward();
    weights.optimizer.step();
    expect_gradient(weights.a, ranks_mean());
    expect_gradient(weights.b, 1.0 / kolo::size());
  }
}

TEST(AfterBackward, ARankWithoutABackwardTakesPartInTheStep) {
  Weights weights;
  for (int step = 0; step < 2; ++step) {
    weights.optimizer.zero_grad();
    if (!is_last() || kolo::size() == 1) weights.all().backward();
    weights.optimizer.step();
    const double sum = kolo::size() == 1 ? 1 : ranks_sum() - kolo::size();
    expect_gradient(weights.a, sum / kolo::size());
  }
}

TEST(AfterBackward, ARankWithoutSamplesIsWaitedForByNobody) {
  if (kolo::size() == 1) return;
  Weights weights({.weigh_by_samples = true});
  for (const bool idle : {true, false, true}) {
    weights.optimizer.zero_grad();
    const bool has_none = idle && is_last();
    weights.optimizer.set_sample_count(has_none ? 0 : 2);
    if (!has_none) (weights.a.sum() + weights.b.sum() + weights.c.sum()).backward();
    EXPECT_EQ(weights.optimizer.pending(), idle && !has_none ? 3U : 0U);
    kolo::allreduce(torch::ones({}), {.name = "loss"});
    weights.optimizer.step();
    expect_gradient(weights.a, 1);
  }
}

TEST(AfterBackward, WhatIsUnderWayIsNotToBeTouched) {
  if (kolo::size() == 1) return;
  const auto message = [](const auto& touch,
                          const kolo::DistributedOptimizerOptions& options = {}) {
    Weights weights(options);
    auto loss = weights.a.sum() + weights.b.sum();
    if (is_last()) loss = loss + weights.c.sum();
    loss.backward();
    if (is_last()) {
      EXPECT_EQ(weights.optimizer.pending(), 1U);
    }
    touch(weights);
    return message_of([&] { weights.optimizer.step(); });
  };
  const auto on_the_last = [](const std::string& said, const std::string& what) {
    EXPECT_THAT(said, is_last() ? HasSubstr(what) : HasSubstr("no error"));
  };
  on_the_last(message([](Weights& weights) {
                if (is_last()) weights.c.mutable_grad().zero_();
              }),
              "/c' was changed while it was under way");
  on_the_last(
      message([](Weights& weights) {
        if (is_last()) weights.c.mutable_grad() = torch::ones({4}, torch::kFloat64);
      }),
      "/c' was replaced while it was under way, as backward() leaves it where not all ranks "
      "have one for the parameter or its group, or it lacks passes; call the optimizer's "
      "synchronize() before");
  // Other ranks would miss a gradient that is cleared without the optimizer.
  on_the_last(message([](Weights& weights) { weights.c.mutable_grad().reset(); }),
              "/c' was cleared while it was under way");
  // Code that reads the values gets LibTorch's error: there are none.
  for (const auto& clip :
       {+[](Weights& weights) { torch::nn::utils::clip_grad_value_({weights.c}, 0.1); },
        +[](Weights& weights) { weights.c.grad().data().mul_(0.5); },
        +[](Weights& weights) { weights.c.mutable_grad().mul_(0.5); }}) {
    EXPECT_EQ(message([&](Weights& weights) {
                if (!is_last()) return;
                EXPECT_NE(message_of([&] { clip(weights); }), "(no error)");
              }),
              "(no error)");
  }
  EXPECT_EQ(message([](Weights& weights) {
              const std::string said = message_of([&] {
                torch::nn::utils::clip_grad_norm_({weights.a, weights.b, weights.c}, 0.1);
              });
              EXPECT_EQ(said == "(no error)", !is_last()) << said;
              EXPECT_EQ(weights.c.grad().defined(), is_last());
              if (is_last()) {
                EXPECT_NE(message_of([&] { weights.c.grad().norm().item<double>(); }),
                          "(no error)");
              }
            }),
            "(no error)");
  on_the_last(message(
                  [](Weights& weights) {
                    if (is_last()) weights.c.mutable_grad().zero_();
                  },
                  {.compression = kolo::compression::fp16()}),
              "/c' was changed while it was under way");
  // The other gradients may be cleared, and the optimizer's own function may clear all.
  EXPECT_EQ(message([](Weights& weights) { weights.a.mutable_grad().mul_(0.5); }), "(no error)");
  EXPECT_EQ(message([](Weights& weights) { weights.optimizer.clip_grad_norm(0.1); }), "(no error)");
}

TEST(AfterBackward, AGroupThatWaitsIsNotToBeTouched) {
  Weights weights({.groups = 1});
  (weights.a.sum() * mine()).backward();
  EXPECT_EQ(weights.optimizer.pending(), 1U);
  weights.a.mutable_grad().zero_();
  EXPECT_THAT(message_of([&] { weights.optimizer.step(); }), HasSubstr("/a' was changed"));
  weights.optimizer.zero_grad();
  // One pass completes the group, another adds to one member of it.
  weights.all().backward();
  expect_gradient(weights.a, ranks_mean());
  (weights.a.sum() * mine()).backward();
  weights.optimizer.step();
  expect_gradient(weights.a, 2 * ranks_mean());
  expect_gradient(weights.b, ranks_mean());
}

TEST(AfterBackward, TwoOptimizersOfOneLossAreBothDone) {
  Weights one;
  Weights other;
  for (int step = 0; step < 2; ++step) {
    one.optimizer.zero_grad();
    other.optimizer.zero_grad();
    // The order differs from rank to rank.
    (kolo::rank() % 2 == 0 ? one.all() + other.all() : other.all() + one.all()).backward();
    expect_gradient(one.a, ranks_mean());
    expect_gradient(other.c, ranks_mean());
    other.optimizer.step();
    one.optimizer.step();
  }
}

/// x · w; its backward computes x · w again inside, as activation checkpointing does.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& w) {
    context->saved_data["w"] = w;
    context->save_for_backward({x});
    return x * w;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode on(true);
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    (x * context->saved_data["w"].toTensor()).backward(gradients[0]);
    return {x.grad(), torch::Tensor()};
  }
};

TEST(AfterBackward, ABackwardInsideOfAnotherOneIsAPartOfIt) {
  Weights weights;
  for (int step = 0; step < 3; ++step) {
    weights.optimizer.zero_grad();
    {
      const torch::NoGradGuard no_grad;
      weights.a.fill_(1);
      weights.c.fill_(0.25);
    }
    const auto x = weights.c.sum() * torch::ones({3}, torch::kFloat64);
    (Recomputed::apply(x, weights.a).sum() * mine()).backward();
    expect_gradient(weights.a, ranks_mean());
    expect_gradient(weights.c, 3 * ranks_mean());
    EXPECT_EQ(weights.optimizer.pending(), 0U);
    weights.optimizer.step();
  }
}

TEST(AfterBackward, UnscaledGradientsAreClipped) {
  Weights weights;
  kolo::GradScaler scaler({.init_scale = 8});
  for (const bool by_optimizer : {false, true}) {
    weights.optimizer.zero_grad();
    scaler.scale(weights.all()).backward();
    scaler.unscale_(weights.optimizer);
    expect_gradient(weights.a, ranks_mean());
    if (by_optimizer) {
      weights.optimizer.clip_grad_norm(1.0);
    } else {
      torch::nn::utils::clip_grad_norm_({weights.a, weights.b, weights.c}, 1.0);
    }
    EXPECT_TRUE(scaler.step(weights.optimizer));
    scaler.update();
    EXPECT_NEAR(weights.a.grad()[0].item<double>(), 1.0 / 3, 1e-4);
  }
}

TEST(AfterBackward, JoinedRanksTakePart) {
  Weights weights;
  kolo::Join join;
  for (int step = 0; step <= kolo::rank(); ++step) {
    weights.optimizer.zero_grad();
    weights.all().backward();
    double expected = 0;
    for (int rank = step; rank < kolo::size(); ++rank) expected += rank + 1;
    expect_gradient(weights.b, expected / (kolo::size() - step));
    weights.optimizer.step();
    join.step();
  }
  join.finish();
}

TEST(AfterBackward, GradientsOfOneBufferAreApart) {
  for (const auto op : {kolo::ReduceOp::kAverage, kolo::ReduceOp::kSum}) {
    const double unit = op == kolo::ReduceOp::kSum ? ranks_sum() : ranks_mean();
    auto a = torch::ones({4}, kLeaf);
    auto b = torch::ones({4}, kLeaf);
    auto outside = torch::ones({4}, kLeaf);
    kolo::DistributedOptimizer optimizer(torch::optim::SGD({a, b}, 0.5),
                                         kolo::NamedTensors{{"a", a}, {"b", b}}, {.op = op});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      outside.mutable_grad().reset();
      const auto sum = a.unsqueeze(0) + b.unsqueeze(0) + outside.unsqueeze(0);
      (sum * mine()).sum().backward();
      optimizer.synchronize();
      expect_gradient(a, unit);
      expect_gradient(b, unit);
      expect_gradient(outside, mine());
      optimizer.step();
    }
  }
}

struct OverlaidImpl : torch::nn::Module {
  torch::Tensor a = register_parameter("a", torch::ones({4}));
  torch::Tensor b = register_parameter("b", torch::ones({4}));
  torch::Tensor forward(const torch::Tensor& x) { return (a.unsqueeze(0) + b.unsqueeze(0)) * x; }
};
TORCH_MODULE(Overlaid);

TEST(AfterBackward, GradientsOfOneBufferAreApartInDdp) {
  for (const bool view : {false, true}) {
    kolo::DistributedDataParallel ddp(Overlaid(), {.gradient_as_bucket_view = view});
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      ddp.forward(torch::full({1}, mine())).sum().backward();
      expect_gradient(ddp.module()->a, ranks_mean());
      expect_gradient(ddp.module()->b, ranks_mean());
    }
  }
}

TEST(AfterBackward, AGraphOfGradientsIsRefusedByName) {
  Weights weights;
  EXPECT_THAT(message_of([&] {
                weights.a.pow(2).sum().backward({}, /*retain_graph=*/true, /*create_graph=*/true);
              }),
              AllOf(HasSubstr("DistributedOptimizer: the gradient of parameter"), HasSubstr("/a'"),
                    HasSubstr("create_graph"), HasSubstr("torch::autograd::grad()")));
  weights.optimizer.zero_grad();
  weights.all().backward();
  expect_gradient(weights.a, ranks_mean());
}

TEST(AfterBackward, WhatWasThawedAfterZeroGradIsAveragedToo) {
  auto shared = network();
  auto alone = network();
  for (auto* const net : {&shared, &alone})
    (*net)[2]->as<torch::nn::Linear>()->weight.set_requires_grad(false);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(shared->parameters(), 0.1),
                                       shared->named_parameters());
  torch::optim::SGD reference(alone->parameters(), 0.1);
  torch::manual_seed(9);
  const auto data = torch::randn({2 * kolo::size(), 6}, torch::kFloat64);
  const auto part = data.slice(0, kolo::rank(), data.size(0), kolo::size());
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    reference.zero_grad();
    if (step == 1)
      for (auto* const net : {&shared, &alone})
        (*net)[2]->as<torch::nn::Linear>()->weight.set_requires_grad(true);
    shared->forward(part).pow(2).mean().backward();
    alone->forward(data).pow(2).mean().backward();
    torch::nn::utils::clip_grad_norm_(shared->parameters(), 0.05);
    torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.05);
    optimizer.step();
    reference.step();
    for (const auto& item : alone->named_parameters())
      EXPECT_TRUE(
          torch::allclose(item.value(), shared->named_parameters()[item.key()], 1e-9, 1e-11))
          << item.key() << " after step " << step;
  }
}

}  // namespace
