// Ranks with different numbers of samples in a step, alone and under mpirun. With weigh_by_samples,
// DistributedDataParallel has the gradients of one process with all samples.
#include "tests/support/ddp_ranks.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

torch::nn::Sequential small_net() {
  torch::manual_seed(3);
  torch::nn::Sequential made(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
  made->to(torch::kFloat64);
  return made;
}

/// The first rank has none, unless it is the only rank.
std::int64_t samples_of(int rank) { return kolo::size() == 1 ? 5 : 3 * rank; }

struct Shares {
  torch::Tensor all;
  torch::Tensor mine;
};

Shares batch_of(int step) {
  torch::manual_seed(static_cast<std::uint64_t>(50 + step));
  std::int64_t begin = 0;
  std::int64_t count = 0;
  for (int r = 0; r < kolo::size(); ++r) {
    if (r < kolo::rank()) begin += samples_of(r);
    count += samples_of(r);
  }
  const torch::Tensor all = torch::randn({count, 8}, torch::kFloat64);
  return {all, all.narrow(0, begin, samples_of(kolo::rank()))};
}

/// Loss over rows of inputs and targets; not a number without rows.
template <class M>
torch::Tensor loss_of(M& model, const torch::Tensor& rows) {
  return torch::mse_loss(model.forward(rows.narrow(1, 0, 6)), rows.narrow(1, 6, 2));
}

void uneven_shares_equal_one_process(const DdpOptions& options, bool hook, bool accumulates) {
  auto alone = small_net();
  DistributedDataParallel ddp(small_net(), options);
  if (hook) ddp.register_comm_hook(kolo::test::average_bucket);
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD reference(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    const Shares batch = batch_of(step);
    optimizer.zero_grad(step % 2 == 0);
    if (accumulates) {  // each pass adds its part of this rank's mean
      const auto local = ddp.no_sync();
      (loss_of(ddp, batch.mine) * 0.25).backward();
    }
    ddp.set_sample_count(samples_of(kolo::rank()));
    (loss_of(ddp, batch.mine) * (accumulates ? 0.75 : 1.0)).backward();
    optimizer.step();
    reference.zero_grad();
    loss_of(*alone, batch.all).backward();
    reference.step();
  }
  const auto mine = ddp.parameters();
  const auto theirs = alone->parameters();
  for (std::size_t i = 0; i < mine.size(); ++i)
    EXPECT_TRUE(torch::allclose(mine[i], theirs[i], 1e-9, 1e-11)) << i << '\n' << mine[i];
}

TEST(UnevenShares, WeighedBySamplesTheyAreOneProcess) {
  for (const bool views : {true, false}) {
    for (const bool hook : {false, true}) {
      for (const bool accumulates : {false, true}) {
        uneven_shares_equal_one_process(
            {.gradient_as_bucket_view = views, .weigh_by_samples = true}, hook, accumulates);
      }
    }
    uneven_shares_equal_one_process({.find_unused_parameters = true,
                                     .gradient_as_bucket_view = views,
                                     .weigh_by_samples = true},
                                    false, false);
  }
}

TEST(UnevenShares, ACountThatOneRankLeavesOutFailsThatStepOnAll) {
  DistributedDataParallel ddp(small_net(), {.weigh_by_samples = true});
  const torch::Tensor rows = torch::ones({2, 8}, torch::kFloat64);
  const int silent = kolo::size() - 1;
  for (int step = 0; step < 2; ++step) {
    if (kolo::rank() != silent) ddp.set_sample_count(2);
    EXPECT_THAT(message_of([&] { loss_of(ddp, rows).backward(); }),
                AllOf(HasSubstr("rank " + std::to_string(silent)),
                      HasSubstr("weigh_by_samples needs set_sample_count() before each backward")));
  }
  ddp.set_sample_count(0);
  EXPECT_THAT(message_of([&] { loss_of(ddp, rows).backward(); }),
              HasSubstr("set_sample_count() told 0 on all ranks"));
  ddp.set_sample_count(2);
  loss_of(ddp, rows).backward();
}

TEST(UnevenShares, CountsThatMeanNothingAreRefused) {
  DistributedDataParallel weighing(small_net(), {.weigh_by_samples = true});
  EXPECT_THAT(message_of([&] { weighing.set_sample_count(-1); }),
              HasSubstr("set_sample_count(-1): a count is not negative"));
  DistributedDataParallel plain(small_net());
  EXPECT_THAT(message_of([&] { plain.set_sample_count(1); }),
              HasSubstr("without weigh_by_samples"));
}

}  // namespace
