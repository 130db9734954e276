// DistributedDataParallel when ranks run out of data before others. On all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

/// Gives each weight a gradient of this rank's number and 1.
void backward(DistributedDataParallel<torch::nn::Linear>& ddp) {
  (ddp.forward(torch::ones({1, 2})).sum() * (kolo::rank() + 1)).backward();
}

TEST(DdpJoin, RanksThatHaveJoinedAreNotMissed) {
  for (const DdpOptions& options :
       {DdpOptions{.broadcast_buffers = false},
        DdpOptions{.broadcast_buffers = false, .gradient_as_bucket_view = false},
        DdpOptions{.broadcast_buffers = false, .static_graph = true}}) {
    DistributedDataParallel ddp(torch::nn::Linear(2, 1), options);
    kolo::Join join;
    for (int step = 0; step <= kolo::rank() + 1; ++step) {
      ddp.zero_grad();
      backward(ddp);
      join.step();
      // Ranks below step - 1 have finished; the others' mean is that of rank + 1.
      const int first = std::max(step - 1, 0);
      EXPECT_NEAR(ddp.module()->weight.grad().mean().item<double>(),
                  (first + kolo::size() + 1) / 2.0, 1e-6);
    }
    EXPECT_EQ(join.finish(), kolo::size() - 1);
  }
}

TEST(DdpJoin, RanksWithoutABatchJoinAtOnce) {
  DistributedDataParallel ddp(torch::nn::Linear(2, 1), {.broadcast_buffers = false});
  kolo::Join join;
  for (int step = 0; step < kolo::rank(); ++step) {
    ddp.zero_grad();
    backward(ddp);
    join.step();
    // Ranks up to `step` have finished.
    EXPECT_NEAR(ddp.module()->weight.grad().mean().item<double>(), (step + 2 + kolo::size()) / 2.0,
                1e-6);
  }
  join.finish();
  // A rebuild that was not possible during the join happens now.
  backward(ddp);
  EXPECT_EQ(ddp.stats().rebuilds, 1);
}

TEST(DdpJoin, AStaticGraphIsThatOfAPassOfAllRanks) {
  DistributedDataParallel ddp(torch::nn::Linear(2, 1),
                              {.broadcast_buffers = false, .static_graph = true});
  kolo::Join join;
  for (int step = 0; step < kolo::rank(); ++step) {
    backward(ddp);
    join.step();
  }
  join.finish();
  for (int step = 0; step < 2; ++step) {
    ddp.zero_grad();
    backward(ddp);
    EXPECT_NEAR(ddp.module()->weight.grad().mean().item<double>(), (kolo::size() + 1) / 2.0, 1e-6);
  }
}

TEST(DdpJoin, BuffersThatRankZeroCannotSendAnyMoreSayWhatToDo) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  DistributedDataParallel ddp(torch::nn::BatchNorm1d(2));
  const auto step = [&] { ddp.forward(torch::randn({4, 2})).sum().backward(); };
  kolo::Join join;
  step();
  if (kolo::rank() > 0) {
    EXPECT_THAT(message_of(step),
                AllOf(HasSubstr("DistributedDataParallel"), HasSubstr("rank 0 has joined"),
                      HasSubstr("broadcast_buffers"), HasSubstr("broadcast_parameters")));
  }
  join.finish();
}

/// As the message and <kolo/join.h> say.
TEST(DdpJoin, BuffersComeFromTheLastRankAtTheEnd) {
  DistributedDataParallel ddp(torch::nn::BatchNorm1d(2), {.broadcast_buffers = false});
  kolo::Join join;
  for (int i = 0; i <= kolo::rank(); ++i) ddp.forward(torch::randn({4, 2})).sum().backward();
  kolo::broadcast_parameters(*ddp.module(), join.finish());
  EXPECT_EQ(ddp.module()->num_batches_tracked.item<std::int64_t>(), kolo::size());
}

}  // namespace
