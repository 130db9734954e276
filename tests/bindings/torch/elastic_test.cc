// elastic::State and run() where no rank is lost; tests/chaos has the others.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace {

using kolo::elastic::State;
using kolo::test::message_of;
using testing::HasSubstr;

torch::nn::Linear linear(double value) {
  torch::nn::Linear model(2, 1);
  const torch::NoGradGuard no_grad;
  model->weight.fill_(value);
  return model;
}

TEST(Elastic, AllBeginWithRankZerosState) {
  torch::nn::Linear model = linear(1 + kolo::rank());
  torch::optim::SGD sgd(model->parameters(), 0.1 * (1 + kolo::rank()));
  std::string data = "of rank " + std::to_string(kolo::rank());
  State state({.module = model.get(), .optimizer = &sgd, .data = &data});
  int calls = 0;
  kolo::elastic::run(state, [&] {
    ++calls;
    EXPECT_EQ(model->weight[0][0].item<double>(), 1);
    EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.1);
    EXPECT_EQ(data, "of rank 0");
    state.commit();
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(state.progress(), 1U);
  EXPECT_EQ(state.generation(), kolo::membership().generation);
}

TEST(Elastic, AShardedOptimizerBeginsWithRankZerosOptions) {
  torch::nn::Linear model = linear(1 + kolo::rank());
  kolo::ShardedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.1 * (1 + kolo::rank())),
                                   model->named_parameters());
  State state({.module = model.get(), .optimizer = &optimizer});
  kolo::elastic::run(state, [&] {
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.1);
    optimizer.zero_grad();
    model(torch::ones({1, 2})).sum().backward();
    optimizer.step();
    EXPECT_NEAR(model->weight[0][0].item<double>(), 0.9, 1e-6);
    state.commit();
  });
}

TEST(Elastic, EpochsAreThoseOfTheSampler) {
  kolo::DistributedSampler sampler(40);
  State state({.sampler = &sampler});
  EXPECT_EQ(state.epoch(), 0);
  state.set_epoch(3);
  EXPECT_EQ(sampler.epoch(), 3U);
  state.next_epoch();
  EXPECT_EQ(state.epoch(), 4);
  EXPECT_EQ(sampler.epoch(), 4U);
}

TEST(Elastic, ASamplerResumesOverTheRanksThatAreThere) {
  kolo::DistributedSampler sampler(24, {.shuffle = false, .global_batch = 6});
  sampler.next(1);
  sampler.next(1);
  EXPECT_EQ(sampler.position(), 12U);
  sampler.resume(sampler.epoch(), 6);
  sampler.reset();
  const auto batch = sampler.next(1);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->front(), 6U + static_cast<std::size_t>(kolo::rank()));
}

TEST(Elastic, AnExceptionOfTheProgramsOwnPasses) {
  State state({});
  EXPECT_THROW(kolo::elastic::run(state, [] { throw std::out_of_range("mine"); }),
               std::out_of_range);
}

TEST(Elastic, WhatCannotBeTakenToAnotherWorldIsRefused) {
  torch::nn::Linear model = linear(1);
  kolo::ProcessSet set;
  if (kolo::size() > 1) set = kolo::add_process_set({0});
  if (kolo::size() > 1 && kolo::rank() == 0) {
    kolo::ShardedOptimizer sharded(torch::optim::SGD(model->parameters(), 0.1),
                                   model->named_parameters(), {.process_set = set});
    EXPECT_THAT(message_of([&] { State({.optimizer = &sharded}); }),
                HasSubstr("the optimizer reduces over a process set"));
  }
  torch::data::samplers::SequentialSampler sequential(10);
  EXPECT_THAT(message_of([&] { State({.sampler = &sequential}); }),
              HasSubstr("the sampler does not know the ranks"));
}

/// The world ends and begins anew for an optimizer or a wrapped module, as run() does it.
template <class Member, class Step>
void expect_same_steps_in_the_next_world(const torch::nn::Linear& model, Member& member,
                                         const Step& step) {
  step();
  const torch::Tensor before = model->weight.detach().clone();
  member.leave_world();
  member.enter_world();
  EXPECT_TRUE(torch::equal(model->weight, before));
  step();
  EXPECT_FALSE(torch::equal(model->weight, before));
  const torch::Tensor sum = kolo::allreduce(model->weight.detach());
  EXPECT_TRUE(torch::allclose(sum, model->weight * kolo::size())) << "the ranks are alike";
}

torch::Tensor loss_of(const torch::Tensor& outputs) { return outputs.pow(2).sum(); }
torch::Tensor input() { return torch::full({3, 2}, 1.0 + kolo::rank()); }

TEST(Elastic, AnOptimizerEntersAnotherWorld) {
  torch::nn::Linear model = linear(1);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.01),
                                       model->named_parameters());
  kolo::broadcast_parameters(*model, 0);
  expect_same_steps_in_the_next_world(model, optimizer, [&] {
    optimizer.zero_grad();
    loss_of(model(input())).backward();
    optimizer.step();
  });
  optimizer.leave_world();
  EXPECT_THAT(message_of([&] { optimizer.zero_grad(); }), HasSubstr("its world has ended"));
  optimizer.enter_world();
}

TEST(Elastic, AWrappedModuleEntersAnotherWorldWithItsHook) {
  torch::nn::Linear model = linear(1);
  kolo::DistributedDataParallel ddp(model);
  int calls = 0;
  ddp.register_comm_hook([&calls](const kolo::GradBucket& bucket) {
    ++calls;
    auto work = kolo::allreduce_async_(bucket.buffer,
                                       {.op = kolo::ReduceOp::kAverage, .name = bucket.name});
    return [work]() mutable { return work.wait(); };
  });
  torch::optim::SGD sgd(model->parameters(), 0.01);
  expect_same_steps_in_the_next_world(model, ddp, [&] {
    sgd.zero_grad();
    loss_of(ddp.forward(input())).backward();
    sgd.step();
  });
  EXPECT_EQ(calls, 2);
  ddp.leave_world();
  EXPECT_THAT(message_of([&] { ddp.forward(input()); }), HasSubstr("its world has ended"));
  ddp.enter_world();
}

}  // namespace
