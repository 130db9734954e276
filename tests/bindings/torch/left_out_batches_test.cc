// Batches that one rank skips: gradients of different steps are never combined, all ranks are told
// at once, and their next steps match again. A batch that all ranks skip, or a difference that does
// not matter, is no error. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace kolo::test;
using testing::HasSubstr;
using torch::optim::SGD;

struct OneImpl : torch::nn::Module {
  torch::Tensor w = register_parameter("w", torch::zeros({1}, torch::kFloat64));
  torch::Tensor forward(double x) { return (w * x).sum(); }
};
TORCH_MODULE(One);

/// A network of one weight, trained with rate 1; its gradient is the input of forward.
struct Way {
  std::string name;
  torch::Tensor w;
  std::function<torch::Tensor(double)> forward;
  std::function<void()> zero_grad;
  std::function<void()> step;
  std::function<void()> leave_out;  ///< skips a batch after forward, before backward

  void train() const { forward(mine()).backward(); }
  std::string message_of_a_step() const {
    return message_of([&] {
      train();
      step();
    });
  }
};

Way horovod() {
  One m;
  auto o = std::make_shared<kolo::DistributedOptimizer<SGD>>(SGD(m->parameters(), 1.0),
                                                             m->named_parameters());
  return {"DistributedOptimizer",
          m->w,
          [m](double x) mutable { return m->forward(x); },
          [o] { o->zero_grad(); },
          [o] { o->step(); },
          [o] { o->zero_grad(); }};
}

Way sharded() {
  One m;
  auto o = std::make_shared<kolo::ShardedOptimizer<SGD>>(SGD(m->parameters(), 1.0),
                                                         m->named_parameters());
  return {"ShardedOptimizer",
          m->w,
          [m](double x) mutable { return m->forward(x); },
          [o] { o->zero_grad(); },
          [o] { o->step(); },
          [o] { o->zero_grad(); }};
}

Way ddp(const kolo::DdpOptions& options = {}) {
  One m;
  auto d = std::make_shared<kolo::DistributedDataParallel<One>>(m, options);
  auto o = std::make_shared<SGD>(m->parameters(), 1.0);
  return {"DistributedDataParallel",
          m->w,
          [d](double x) { return d->forward(x); },
          [o] { o->zero_grad(); },
          [o] { o->step(); },
          [d] { d->forward(7); }};
}

std::vector<Way> all_ways() {
  return {horovod(), sharded(), ddp(), ddp({.find_unused_parameters = true}),
          ddp({.gradient_as_bucket_view = false})};
}

TEST(LeftOutBatches, OfOneRankAreAnErrorOfAllAndTheNextStepsMeet) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  for (const Way& way : all_ways()) {
    double right = 0;
    for (int trip = 0; trip < 6; ++trip) {
      const bool leaves_out = trip == 1 || trip == 3;
      way.zero_grad();
      for (int batch = 0; leaves_out && is_last() && batch < trip; ++batch) way.leave_out();
      const std::string message = way.message_of_a_step();
      if (leaves_out) {
        EXPECT_THAT(message, HasSubstr("left out or repeated a batch")) << way.name;
      } else {
        EXPECT_EQ(message, "(no error)") << way.name << ", trip " << trip;
        right -= mean_of_ranks();
      }
      EXPECT_DOUBLE_EQ(way.w.item<double>(), right) << way.name << ", trip " << trip;
    }
  }
}

TEST(LeftOutBatches, NameTheRankAndBothSteps) {
  if (kolo::size() != 3) GTEST_SKIP() << "takes three ranks; CTest runs this with 2 to 4";
  const Way way = horovod();
  for (int batch = 0; batch < 7 || (is_last() && batch < 8); ++batch) way.zero_grad();
  EXPECT_THAT(way.message_of_a_step(),
              HasSubstr("ranks 0, 1 are at step 7, rank 2 is at step 8: rank 2 has left out or "
                        "repeated a batch"));
}

// For example, out of memory in the middle of a forward.
TEST(LeftOutBatches, MayEndByAnExceptionOfForward) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  struct BoundedImpl : OneImpl {
    torch::Tensor forward(double x) {
      if (x > 100) throw std::bad_alloc();
      return OneImpl::forward(x);
    }
  };
  const auto m = std::make_shared<BoundedImpl>();
  kolo::DistributedDataParallel<std::shared_ptr<BoundedImpl>> wrapped(m);
  if (is_last()) {
    EXPECT_THROW(wrapped.forward(1000), std::bad_alloc);
  }
  EXPECT_THAT(message_of([&] { wrapped.forward(mine()).backward(); }),
              HasSubstr("left out or repeated a batch"));
  m->zero_grad();
  wrapped.forward(mine()).backward();
  expect_gradient(m->w, mean_of_ranks());
}

TEST(LeftOutBatches, OfAllRanksAreNoError) {
  for (const Way& way : all_ways()) {
    double right = 0;
    const auto step = [&] {
      EXPECT_EQ(way.message_of_a_step(), "(no error)") << way.name;
      right -= mean_of_ranks();
      EXPECT_DOUBLE_EQ(way.w.item<double>(), right) << way.name;
    };
    way.zero_grad();
    step();
    way.zero_grad();
    way.leave_out();
    way.zero_grad();
    step();
    way.zero_grad();
    way.train();  // its step is skipped, as after an overflow
    way.zero_grad();
    step();
    // zero_grad() is not called.
    for (int i = 0; i < 2; ++i) {
      way.w.mutable_grad().reset();
      step();
    }
  }
}

TEST(LeftOutBatches, ArePartsOfNoStepThatAccumulates) {
  One m;
  kolo::DistributedDataParallel<One> wrapped(m);
  for (int step = 0; step < 3; ++step) {
    m->zero_grad();
    // Each rank may accumulate any number of passes.
    for (int pass = 0; pass <= kolo::rank(); ++pass) {
      const auto guard = wrapped.no_sync();
      wrapped.forward(1).backward();
    }
    wrapped.forward(mine()).backward();
    expect_gradient(m->w, 2 * mean_of_ranks());
  }
  // Each rank's loss may come from any number of forwards.
  for (int step = 0; step < 3; ++step) {
    m->zero_grad();
    torch::Tensor loss = wrapped.forward(0);
    for (int part = 0; part <= kolo::rank(); ++part) loss = loss + wrapped.forward(1);
    loss.backward();
    expect_gradient(m->w, mean_of_ranks());
  }
}

TEST(LeftOutBatches, ForwardsOfOneRankInEvaluationAreNone) {
  One m;
  kolo::DistributedDataParallel<One> wrapped(m);
  for (int step = 0; step < 3; ++step) {
    m->zero_grad();
    wrapped.forward(mine()).backward();
    expect_gradient(m->w, mean_of_ranks());
    if (!is_last()) continue;
    wrapped.eval();
    wrapped.forward(5);
    wrapped.train();
    const torch::NoGradGuard no_grad;
    wrapped.forward(5);
  }
}

TEST(LeftOutBatches, RanksThatHadJoinedCountAnewWithTheOthers) {
  for (const Way& way : {horovod(), ddp()}) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < (is_last() ? 2 : 4); ++step) {
        way.zero_grad();
        EXPECT_EQ(way.message_of_a_step(), "(no error)") << way.name << ", epoch " << epoch;
      }
      kolo::join();
    }
  }
}

/// To the last rank: the others have given its step up.
void tell_given_up() {
  const float nothing = 0;
  kolo::send(&nothing, 1, kolo::DataType::kFloat32, kolo::size() - 1);
}
/// The message of rank 0 may take longer than one receive waits.
void wait_until_given_up() {
  float nothing = 0;
  while (message_of([&] { kolo::recv(&nothing, 1, kolo::DataType::kFloat32, 0); }) !=
         "(no error)") {
  }
}

// Needs a short KOLO_OPERATION_TIMEOUT, in a process of its own: see tests/torch.cmake.
TEST(LateRanks, DISABLED_FailInTheStepThatTheOthersHaveGivenUpAndMeetThemInTheNext) {
  const Way way = horovod();
  for (int step = 0; step < 3; ++step) {
    way.zero_grad();
    if (step == 1 && is_last()) wait_until_given_up();
    const std::string message = way.message_of_a_step();
    if (step != 1) {
      EXPECT_EQ(message, "(no error)");
    } else if (is_last()) {
      EXPECT_THAT(message, HasSubstr("is at step 2, which rank 0 gave up"));
    } else {
      EXPECT_THAT(
          message,
          HasSubstr("ready gradients' (of 'w') of step 2: submitted by rank 0, missing on rank 1"));
      tell_given_up();
    }
  }
  EXPECT_DOUBLE_EQ(way.w.item<double>(), -2 * mean_of_ranks());
}

/// Two weights; the last rank alone uses `v`.
struct PairImpl : torch::nn::Module {
  torch::Tensor w = register_parameter("w", torch::zeros({1}, torch::kFloat64));
  torch::Tensor v = register_parameter("v", torch::zeros({1}, torch::kFloat64));
  torch::Tensor forward() { return is_last() ? (w + v).sum() : w.sum(); }
};

// The last rank's gradient of `v` has no counterpart in the step that was given up. A wait for it
// would make the rank late for the next step, too.
TEST(LateRanks, DISABLED_WhoseSamplesWereGivenUpMeetTheOthersInTheNextStep) {
  const auto model = std::make_shared<PairImpl>();
  kolo::DistributedOptimizer optimizer(SGD(model->parameters(), 1.0), model->named_parameters(),
                                       {.weigh_by_samples = true});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    if (step == 1 && is_last()) wait_until_given_up();
    const std::string message = message_of([&] {
      optimizer.set_sample_count(1);
      model->forward().backward();
      optimizer.step();
    });
    if (step != 1) {
      EXPECT_EQ(message, "(no error)");
    } else {
      EXPECT_THAT(message, HasSubstr("(samples)'"));
      if (!is_last()) tell_given_up();
    }
  }
  EXPECT_DOUBLE_EQ(model->w.item<double>(), -2);
}

}  // namespace
