// Errors of a program that trains before kolo::init() or after kolo::shutdown(). Alone.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using torch::optim::SGD;

testing::Matcher<std::string> told(const char* who) {
  return AllOf(StartsWith(std::string(who) + ": "), HasSubstr("call kolo::init() first"));
}

void expect_all_say_what_to_do() {
  torch::nn::Linear model(3, 2);
  EXPECT_THAT(message_of([&] {
                kolo::DistributedOptimizer(SGD(model->parameters(), 0.1),
                                           model->named_parameters());
              }),
              told("DistributedOptimizer"));
  EXPECT_THAT(message_of([&] {
                kolo::ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters());
              }),
              told("ShardedOptimizer"));
  EXPECT_THAT(message_of([&] { const kolo::DistributedDataParallel ddp(model); }),
              told("DistributedDataParallel"));
  EXPECT_THAT(message_of([] {
                kolo::SyncBatchNorm(2)->forward(torch::ones({3, 2}));
              }),
              told("SyncBatchNorm"));
  EXPECT_THAT(message_of([&] { kolo::broadcast_parameters(*model, 0); }),
              told("broadcast_parameters()"));
  SGD optimizer(model->parameters(), 0.1);
  EXPECT_THAT(message_of([&] { kolo::broadcast_optimizer_state(optimizer, 0); }),
              told("broadcast_optimizer_state()"));
  EXPECT_THAT(message_of([] { kolo::DistributedSampler(4); }), told("DistributedSampler"));
  EXPECT_THAT(message_of([] { kolo::DistributedEvalSampler(4); }), told("DistributedEvalSampler"));
  EXPECT_THAT(message_of([] { kolo::ElasticSampler(4); }), told("ElasticSampler"));
}

TEST(AfterShutdown, WhatWasMadeBeforeSaysWhatToDo) {
  kolo::init();
  torch::nn::Linear a(3, 2), b(3, 2), c(3, 2);
  kolo::DistributedOptimizer optimizer(SGD(a->parameters(), 0.1), a->named_parameters());
  kolo::ShardedOptimizer sharded(SGD(b->parameters(), 0.1), b->named_parameters());
  kolo::DistributedDataParallel ddp(c);
  const auto input = torch::ones({2, 3});
  kolo::shutdown();
  EXPECT_THAT(message_of([&] { a(input).sum().backward(); }), told("DistributedOptimizer"));
  EXPECT_THAT(message_of([&] { optimizer.step(); }), told("DistributedOptimizer"));
  EXPECT_THAT(message_of([&] { sharded.step(); }), told("ShardedOptimizer"));
  EXPECT_THAT(message_of([&] { sharded.synchronize(); }), told("ShardedOptimizer"));
  EXPECT_THAT(message_of([&] { sharded.clip_grad_norm(1); }), told("ShardedOptimizer"));
  EXPECT_THAT(message_of([&] { sharded.consolidate(); }), told("ShardedOptimizer"));
  EXPECT_THAT(message_of([&] { ddp.forward(input); }), told("DistributedDataParallel"));
  ddp.eval();
  ddp.forward(input);  // needs no communication
}

TEST(BeforeInit, WhatTrainsSaysWhatToDo) {
  expect_all_say_what_to_do();
  EXPECT_EQ(kolo::DistributedSampler(4, {.rank = 1, .size = 2}).num_samples(), 2U);
  kolo::SyncBatchNorm norm(2);
  norm->eval();
  norm->forward(torch::ones({3, 2}));  // needs no communication
}

TEST(BeforeInit, AnAcceleratorBeginsItself) {
  const kolo::Accelerator accelerator;
  EXPECT_EQ(accelerator.num_processes(), 1);
  kolo::shutdown();
  expect_all_say_what_to_do();
}

}  // namespace
