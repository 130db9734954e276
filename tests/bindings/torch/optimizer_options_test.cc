// DistributedOptimizer's options, each against the result of one process, and with every optimizer
// of LibTorch. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kolo::test::message_of;
using kolo::test::ranks_mean;
using kolo::test::ranks_sum;
using testing::HasSubstr;

constexpr auto kDouble = torch::kFloat64;

double scale() { return kolo::rank() + 1; }

/// One parameter, with plain gradient descent of rate 1.
struct Weight {
  torch::Tensor w = torch::ones({3}, torch::TensorOptions(kDouble).requires_grad(true));
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer;

  explicit Weight(const kolo::DistributedOptimizerOptions& options)
      : optimizer(torch::optim::SGD({w}, 1.0), kolo::NamedTensors{{"w", w}}, options) {}
  void backward(double slope) { (w * slope).sum().backward(); }
  void expect_gradient(double value, double tolerance = 1e-9) const {
    EXPECT_TRUE(torch::allclose(w.grad(), torch::full({3}, value, kDouble), tolerance, tolerance))
        << w.grad() << " instead of " << value;
  }
};

TEST(OptimizerOptions, PassesAddUpOnTheRankAndTravelOnce) {
  Weight weight({.backward_passes_per_step = 3});
  for (int step = 0; step < 2; ++step) {
    weight.optimizer.zero_grad();
    weight.backward(scale());
    weight.backward(2 * scale());
    EXPECT_EQ(weight.optimizer.pending(), 0U);
    weight.backward(4 * scale());
    weight.expect_gradient(7 * ranks_mean());
  }
  // A step before the last pass reduces the gradients so far.
  weight.optimizer.zero_grad();
  weight.backward(scale());
  weight.optimizer.synchronize();
  weight.expect_gradient(ranks_mean());
}

TEST(OptimizerOptions, GradientsThatAreOnlyAskedForChangeNone) {
  Weight weight({});
  for (int step = 0; step < 3; ++step) {
    weight.optimizer.zero_grad();
    const torch::Tensor loss = (weight.w * scale()).sum();
    loss.backward({}, /*retain_graph=*/true);
    // Only one rank asks: this must not communicate.
    if (step < 2 || kolo::rank() == 0) {
      const auto asked = torch::autograd::grad({loss}, {weight.w}, {}, /*retain_graph=*/true);
      EXPECT_DOUBLE_EQ(asked[0][0].item<double>(), scale());
    }
    weight.optimizer.synchronize();
    weight.expect_gradient(ranks_mean());
  }
}

TEST(OptimizerOptions, PredivisionGivesTheSameAverage) {
  Weight weight({.gradient_predivide_factor = 4.0});
  weight.backward(scale());
  weight.optimizer.synchronize();
  weight.expect_gradient(ranks_mean());
}

TEST(OptimizerOptions, PredivisionKeepsWeighedHalfGradientsInRange) {
  auto w = torch::ones({3}, torch::requires_grad());
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({w}, 1.0), kolo::NamedTensors{{"w", w}},
                                       {.gradient_predivide_factor = 4096,
                                        .compression = kolo::compression::fp16(),
                                        .weigh_by_samples = true});
  optimizer.set_sample_count(1024);  // with a gradient of 100, beyond float16 by these counts
  (w * 100).sum().backward();
  optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(w.grad(), torch::full({3}, 100.0))) << w.grad();
}

TEST(OptimizerOptions, SumsWhereAsked) {
  Weight weight({.op = kolo::ReduceOp::kSum});
  weight.backward(scale());
  weight.optimizer.synchronize();
  weight.expect_gradient(ranks_sum());
}

TEST(OptimizerOptions, ReducesOverAProcessSet) {
  if (kolo::size() < 3) return;  // a set of all ranks is the world
  const kolo::ProcessSet first_two = kolo::add_process_set({0, 1});
  if (kolo::rank() < 2) {
    Weight weight({.gradient_predivide_factor = 2.0, .process_set = first_two});
    weight.backward(scale());
    weight.optimizer.synchronize();
    weight.expect_gradient(1.5);
  }
  kolo::remove_process_set(first_two);
}

TEST(OptimizerOptions, AdasumAveragesWhatIsEqual) {
  Weight weight({.op = kolo::ReduceOp::kAdasum});
  weight.backward(2);
  weight.optimizer.synchronize();
  weight.expect_gradient(2);
}

TEST(OptimizerOptions, HalfTypesTravelInPlaceOfGradients) {
  for (const auto& compression : {kolo::compression::fp16(), kolo::compression::bf16()}) {
    Weight weight({.compression = compression});
    weight.backward(scale() * 1.001);
    weight.optimizer.synchronize();
    EXPECT_EQ(weight.w.grad().scalar_type(), kDouble);
    weight.expect_gradient(1.001 * ranks_mean(), 1e-2);
    // A second pass adds to the reduced gradient.
    weight.backward(scale());
    weight.optimizer.synchronize();
    weight.expect_gradient(2.001 * ranks_mean(), 1e-2);
  }
}

TEST(OptimizerOptions, ErrorFeedbackLosesNothingInTheLongRun) {
  const double slope = 1.0 + 1.0 / 3000;  // less than float16 tells from 1
  const auto sum_of_steps = [&](std::shared_ptr<kolo::Compressor> compression) {
    Weight weight({.compression = std::move(compression)});
    double sum = 0;
    for (int step = 0; step < 30; ++step) {
      weight.optimizer.zero_grad();
      weight.backward(slope);
      weight.optimizer.synchronize();
      sum += weight.w.grad()[0].item<double>();
    }
    return sum;
  };
  EXPECT_NEAR(sum_of_steps(kolo::compression::fp16_with_error_feedback()), 30 * slope, 2e-3);
  EXPECT_GT(30 * slope - sum_of_steps(kolo::compression::fp16()), 5e-3);
}

/// Sends half of each gradient, and counts the calls.
class Halving final : public kolo::Compressor {
 public:
  torch::ScalarType wire_type(torch::ScalarType) const override { return torch::kFloat32; }
  torch::Tensor compress(const std::string& name, const torch::Tensor& gradient) override {
    EXPECT_THAT(name, HasSubstr("/w"));
    ++calls;
    return (gradient / 2).to(torch::kFloat32);
  }
  int calls = 0;
};

TEST(OptimizerOptions, OnesOwnCompressionKeepsItsState) {
  const auto halving = std::make_shared<Halving>();
  Weight weight({.compression = halving});
  for (int step = 0; step < 3; ++step) {
    weight.optimizer.zero_grad();
    weight.backward(scale());
    weight.optimizer.synchronize();
  }
  weight.expect_gradient(ranks_mean() / 2, 1e-6);
  EXPECT_EQ(halving->calls, 3);
}

TEST(OptimizerOptions, SparseGradientsTravelDenseOnRequest) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  const auto indices = torch::tensor({kolo::rank() % 6, 5}, torch::kInt64);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(embedding->parameters(), 1.0),
                                       embedding->named_parameters(), {.sparse_as_dense = true});
  kolo::broadcast_parameters(*embedding, 0);
  embedding->forward(indices).sum().backward();
  optimizer.synchronize();
  ASSERT_FALSE(embedding->weight.grad().is_sparse());
  EXPECT_NEAR(embedding->weight.grad()[5][0].item<double>(), kolo::size() == 6 ? 7.0 / 6 : 1.0,
              1e-6);
  EXPECT_NEAR(embedding->weight.grad().sum().item<double>(), 4.0, 1e-5);
}

TEST(OptimizerOptions, UnequalBatchesWeighBySamples) {
  // Ranks take 1, 2, 3 … rows of a batch; the last step is short, and rank 0 alone has a row.
  torch::manual_seed(3);
  auto alone = torch::nn::Linear(4, 2);
  auto shared = torch::nn::Linear(4, 2);
  alone->to(kDouble);
  shared->to(kDouble);
  kolo::broadcast_parameters(*alone, 0);
  {
    const torch::NoGradGuard no_grad;
    shared->weight.copy_(alone->weight);
    shared->bias.copy_(alone->bias);
  }
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(shared->parameters(), 0.1),
                                       shared->named_parameters(), {.weigh_by_samples = true});
  torch::optim::SGD reference(alone->parameters(), 0.1);
  const int rows = kolo::size() * (kolo::size() + 1) / 2;
  for (int step = 0; step < 10; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const bool is_short = step == 9;
    const auto input = torch::randn({is_short ? 1 : rows, 4}, kDouble);
    const auto target = torch::randn({is_short ? 1 : rows, 2}, kDouble);
    const int begin = is_short ? std::min(kolo::rank(), 1) : kolo::rank() * (kolo::rank() + 1) / 2;
    const int count = is_short ? (kolo::rank() == 0 ? 1 : 0) : kolo::rank() + 1;
    optimizer.zero_grad();
    optimizer.set_sample_count(count);
    if (count > 0) {
      torch::mse_loss(shared->forward(input.slice(0, begin, begin + count)),
                      target.slice(0, begin, begin + count))
          .backward();
    }
    optimizer.step();
    reference.zero_grad();
    torch::mse_loss(alone->forward(input), target).backward();
    reference.step();
    ASSERT_TRUE(torch::allclose(shared->weight, alone->weight, 1e-9, 1e-12)) << "step " << step;
  }
}

TEST(OptimizerOptions, ClipsTheGlobalNormAndDoesNotWaitTwice) {
  Weight weight({});
  weight.backward(scale());
  const double norm = weight.optimizer.clip_grad_norm(1.0);
  EXPECT_NEAR(norm, std::sqrt(3.0) * ranks_mean(), 1e-6);
  weight.optimizer.step();
  EXPECT_TRUE(torch::allclose(weight.w, torch::full({3}, 1 - 1 / std::sqrt(3.0), kDouble), 1e-4));
  // step() takes a gradient that was changed after synchronize().
  weight.optimizer.zero_grad();
  weight.backward(scale());
  weight.optimizer.synchronize();
  weight.optimizer.skip_synchronize();
  const auto before = weight.w.detach().clone();
  weight.w.mutable_grad().fill_(0.25);
  weight.optimizer.step();
  EXPECT_TRUE(torch::allclose(weight.w, before - 0.25));
}

TEST(OptimizerOptions, SkippingWithGradientsUnderWayIsAnError) {
  if (kolo::size() == 1) return;
  Weight weight({});
  if (kolo::rank() == 0) {
    weight.backward(1);
    EXPECT_THAT(message_of([&] { weight.optimizer.skip_synchronize(); }),
                HasSubstr("gradients are under way; call synchronize() first"));
  }
  weight.optimizer.step();
}

TEST(OptimizerOptions, OptionsThatMakeNoSenseAreNamed) {
  using Options = kolo::DistributedOptimizerOptions;
  const auto message = [](const Options& options) {
    return message_of([&] { Weight weight(options); });
  };
  EXPECT_THAT(message({.backward_passes_per_step = 0}), HasSubstr("passes_per_step is 0"));
  EXPECT_THAT(message({.gradient_predivide_factor = -1}), HasSubstr("it is above 0"));
  EXPECT_THAT(message({.op = kolo::ReduceOp::kMax}), HasSubstr("op is max; it is average"));
  EXPECT_THAT(message({.op = kolo::ReduceOp::kSum, .gradient_predivide_factor = 2}),
              HasSubstr("op must be kAverage"));
  EXPECT_THAT(message({.op = kolo::ReduceOp::kSum, .weigh_by_samples = true}),
              HasSubstr("op must be kAverage"));
  Weight weight({});
  EXPECT_THAT(message_of([&] { weight.optimizer.set_sample_count(3); }),
              HasSubstr("made without weigh_by_samples"));
}

/// Steps of an optimizer over ranks against steps over the whole batch in one process.
template <class O, class Options>
void expect_equal_to_one_process(const char* name, const Options& options,
                                 const kolo::DistributedOptimizerOptions& how = {}) {
  SCOPED_TRACE(name);
  torch::manual_seed(11);
  torch::nn::Linear alone(5, 3);
  torch::nn::Linear shared(5, 3);
  alone->to(kDouble);
  shared->to(kDouble);
  kolo::broadcast_parameters(*alone, 0);
  {
    const torch::NoGradGuard no_grad;
    shared->weight.copy_(alone->weight);
    shared->bias.copy_(alone->bias);
  }
  kolo::DistributedOptimizer optimizer(O(shared->parameters(), options), shared->named_parameters(),
                                       how);
  O reference(alone->parameters(), options);
  for (int step = 0; step < 8; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(50 + step));
    // Two rows on each rank; or unequal batches, one of them empty.
    const int rows = how.weigh_by_samples ? kolo::rank() : 2;
    const int begin = how.weigh_by_samples ? rows * (rows - 1) / 2 : 2 * kolo::rank();
    const int all = how.weigh_by_samples ? std::max(kolo::size() * (kolo::size() - 1) / 2, 1)
                                         : 2 * kolo::size();
    const int count = kolo::size() == 1 ? all : rows;
    const auto input = torch::randn({all, 5}, kDouble);
    const auto target = torch::randn({all, 3}, kDouble);
    const auto loss_of = [&](torch::nn::Linear& model, const auto& x, const auto& y, auto& opt) {
      opt.zero_grad();
      if constexpr (!std::is_same_v<std::decay_t<decltype(opt)>, O>) {
        if (how.weigh_by_samples) opt.set_sample_count(count);
      }
      auto loss = torch::mse_loss(
          model->forward(x), y,
          how.op == kolo::ReduceOp::kSum ? at::Reduction::Sum : at::Reduction::Mean);
      if (x.size(0) > 0) loss.backward();
      return loss;
    };
    optimizer.step([&] {
      return loss_of(shared, input.slice(0, begin, begin + count),
                     target.slice(0, begin, begin + count), optimizer);
    });
    reference.step([&] { return loss_of(alone, input, target, reference); });
    ASSERT_TRUE(torch::allclose(shared->weight, alone->weight, 1e-6, 1e-8)) << "step " << step;
  }
}

TEST(OptimizerOptions, EveryOptimizerOfLibTorchEqualsOneProcess) {
  using namespace torch::optim;
  expect_equal_to_one_process<SGD>("SGD", SGDOptions(0.05).momentum(0.9));
  expect_equal_to_one_process<Adam>("Adam", AdamOptions(0.01));
  expect_equal_to_one_process<AdamW>("AdamW", AdamWOptions(0.01));
  expect_equal_to_one_process<Adagrad>("Adagrad", AdagradOptions(0.01));
  expect_equal_to_one_process<RMSprop>("RMSprop", RMSpropOptions(0.01));
  expect_equal_to_one_process<LBFGS>("LBFGS", LBFGSOptions(0.1).max_iter(5));
  const auto searching = LBFGSOptions(0.5).max_iter(5).line_search_fn("strong_wolfe");
  expect_equal_to_one_process<LBFGS>("LBFGS with a line search", searching);
  expect_equal_to_one_process<LBFGS>("LBFGS of sums", searching, {.op = kolo::ReduceOp::kSum});
  expect_equal_to_one_process<LBFGS>("LBFGS of weighed means", searching,
                                     {.weigh_by_samples = true});
}

TEST(OptimizerOptions, ASchedulerThatWatchesTheLossTakesIt) {
  Weight weight({});
  torch::optim::ReduceLROnPlateauScheduler schedule(
      weight.optimizer, torch::optim::ReduceLROnPlateauScheduler::min, 0.5F, /*patience=*/0);
  for (int i = 0; i < 3; ++i) schedule.step(1.0F);
  EXPECT_LT(weight.optimizer.param_groups()[0].options().get_lr(), 1.0);
}

}  // namespace
