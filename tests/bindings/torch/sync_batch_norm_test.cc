// SyncBatchNorm against torch::nn::BatchNorm on the batches of all ranks together. Alone and under
// mpirun, on all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace {

using kolo::SyncBatchNorm;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using torch::nn::BatchNormOptions;

/// Rank r's rows of the batch: `rows[r]` of them.
torch::Tensor share_of(const torch::Tensor& batch, const std::vector<std::int64_t>& rows) {
  const auto mine = rows.begin() + kolo::rank();
  return batch.narrow(0, std::accumulate(rows.begin(), mine, std::int64_t{0}), *mine);
}

/// Rows by rank: the same number, or 0, 3, 6, … (6 on a single rank).
std::vector<std::int64_t> rows_of(bool even) {
  std::vector<std::int64_t> rows;
  for (int r = 0; r < kolo::size(); ++r) rows.push_back(even ? 2 : kolo::size() == 1 ? 6 : 3 * r);
  return rows;
}

/// Compares forward, running statistics and gradients over `steps` batches whose values have the
/// shape `inner`.
template <class Plain>
void equals_plain(const BatchNormOptions& options, std::vector<std::int64_t> inner,
                  torch::ScalarType type, double tolerance) {
  for (const bool even : {true, false}) {
    const auto rows = rows_of(even);
    Plain alone(options);
    SyncBatchNorm together(options);
    alone->to(type);
    together->to(type);
    if (options.affine()) {
      const torch::NoGradGuard no_grad;
      alone->weight.copy_(torch::linspace(0.5, 2, options.num_features()));
      together->weight.copy_(alone->weight);
    }
    auto shape = inner;
    shape.insert(shape.begin(), std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
    for (std::uint64_t step = 0; step < 3; ++step) {
      torch::manual_seed(step);
      // Far from zero, where sums of squares lose digits.
      const auto batch = (torch::randn(shape, torch::kFloat64) + 30).to(type).requires_grad_();
      const auto weights = torch::randn(shape, torch::kFloat64).to(type);
      auto mine = share_of(batch.detach(), rows).clone().requires_grad_();
      alone->zero_grad();
      together->zero_grad();
      const auto expected = alone(batch);
      const auto output = together(mine);
      EXPECT_TRUE(torch::allclose(output, share_of(expected, rows), tolerance, tolerance));
      EXPECT_EQ(output.scalar_type(), expected.scalar_type());
      (expected.square() * weights).sum().backward();
      (output.square() * share_of(weights, rows)).sum().backward();
      EXPECT_TRUE(
          torch::allclose(mine.grad(), share_of(batch.grad(), rows), tolerance, 10 * tolerance));
      for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
        // This rank's part of the gradient.
        const auto sum = kolo::allreduce(together->parameters()[i].grad());
        EXPECT_TRUE(torch::allclose(sum, alone->parameters()[i].grad(), tolerance, 10 * tolerance));
      }
    }
    ASSERT_EQ(together->named_buffers().keys(), alone->named_buffers().keys());
    ASSERT_EQ(together->named_parameters().keys(), alone->named_parameters().keys());
    for (std::size_t i = 0; i < alone->buffers().size(); ++i) {
      EXPECT_TRUE(torch::allclose(together->buffers()[i], alone->buffers()[i], tolerance));
    }
    together->eval();
    alone->eval();
    const auto probe = torch::ones(shape, type);
    EXPECT_TRUE(torch::allclose(together(probe), alone(probe), tolerance, tolerance));
  }
}

TEST(SyncBatchNorm, EqualsOneBatchOfEveryDimension) {
  using torch::kFloat64;
  equals_plain<torch::nn::BatchNorm1d>(BatchNormOptions(3), {3}, kFloat64, 1e-9);
  equals_plain<torch::nn::BatchNorm1d>(BatchNormOptions(3), {3, 5}, kFloat64, 1e-9);
  equals_plain<torch::nn::BatchNorm2d>(BatchNormOptions(4), {4, 3, 2}, kFloat64, 1e-9);
  equals_plain<torch::nn::BatchNorm3d>(BatchNormOptions(2), {2, 2, 3, 2}, kFloat64, 1e-9);
}

TEST(SyncBatchNorm, EqualsOneBatchWithEveryOption) {
  using torch::kFloat64;
  BatchNormOptions options(3);
  equals_plain<torch::nn::BatchNorm1d>(BatchNormOptions(3).momentum(std::nullopt), {3}, kFloat64,
                                       1e-9);
  equals_plain<torch::nn::BatchNorm1d>(BatchNormOptions(3).affine(false), {3}, kFloat64, 1e-9);
  equals_plain<torch::nn::BatchNorm1d>(BatchNormOptions(3).eps(0.3).momentum(0.7), {3}, kFloat64,
                                       1e-9);
  equals_plain<torch::nn::BatchNorm2d>(options, {3, 4, 4}, torch::kFloat32, 2e-4);
  // Without running statistics, evaluation uses the batch's.
  SyncBatchNorm without(BatchNormOptions(3).track_running_stats(false));
  EXPECT_TRUE(without->named_buffers().is_empty() || !without->running_mean.defined());
  without->eval();
  if (kolo::rank() == 0) {
    EXPECT_NEAR(without(torch::randn({8, 3})).mean().item<double>(), 0, 1e-5) << "asks nobody";
  }
}

TEST(SyncBatchNorm, TakesHalfTypes) {
  if (kolo::size() == 1) return;
  SyncBatchNorm norm(BatchNormOptions(2));
  auto input = torch::full({2, 2}, kolo::rank(), torch::kBFloat16).requires_grad_();
  const auto output = norm(input);
  EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
  const double mean = (kolo::size() - 1) / 2.0;
  const double deviation = std::sqrt((kolo::size() * kolo::size() - 1) / 12.0);
  EXPECT_NEAR(output[0][0].item<double>(), (kolo::rank() - mean) / deviation, 0.02);
  output.sum().backward();
  EXPECT_EQ(input.grad().scalar_type(), torch::kBFloat16);
  EXPECT_EQ(norm->weight.grad().scalar_type(), torch::kFloat32);
}

TEST(SyncBatchNorm, KeepsChannelsLast) {
  SyncBatchNorm norm(BatchNormOptions(4));
  const auto input = torch::randn({2, 4, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(norm(input).is_contiguous(torch::MemoryFormat::ChannelsLast));
}

TEST(SyncBatchNorm, CountsTheRanksOfItsSet) {
  if (kolo::size() < 3) return;
  const kolo::ProcessSet pair = kolo::add_process_set({0, 2});
  if (kolo::rank() == 0 || kolo::rank() == 2) {
    SyncBatchNorm norm(BatchNormOptions(1), pair);
    const auto output = norm(torch::full({2, 1}, 1.0 * kolo::rank(), torch::kFloat32));
    EXPECT_NEAR(output[0][0].item<double>(), kolo::rank() - 1.0, 1e-4);
  }
  kolo::barrier();
  kolo::remove_process_set(pair);
}

/// A Sequential inside another one.
struct InnerImpl : torch::nn::SequentialImpl {
  InnerImpl() : SequentialImpl(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8)) {}
  torch::Tensor forward(torch::Tensor x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Inner);

torch::nn::Sequential network() {
  torch::nn::Sequential network(Inner(), torch::nn::Tanh(), torch::nn::BatchNorm1d(8),
                                torch::nn::Linear(8, 2));
  network->to(torch::kFloat64);
  return network;
}

TEST(SyncBatchNorm, ConvertedItTrainsAsOneProcessForFiftySteps) {
  torch::manual_seed(3);
  auto alone = network();
  auto mine = network();
  torch::optim::SGD optimizer(mine->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  EXPECT_EQ(kolo::convert_sync_batchnorm(*mine), 2);  // after the optimizer was made
  EXPECT_EQ(kolo::convert_sync_batchnorm(*mine), 0);
  kolo::DistributedDataParallel ddp(mine);
  std::stringstream stream;
  torch::save(mine, stream);
  torch::load(alone, stream);
  torch::optim::SGD reference(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto rows = rows_of(false);
  const auto all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  for (std::uint64_t step = 0; step < 50; ++step) {
    torch::manual_seed(100 + step);
    const auto input = torch::randn({all, 6}, torch::kFloat64);
    const auto target = torch::randn({all, 2}, torch::kFloat64);
    const auto loss = [&](auto& module, const torch::Tensor& x, const torch::Tensor& y) {
      return (module->forward(x) - y).square().sum() / static_cast<double>(all);
    };
    ddp.zero_grad();
    reference.zero_grad();
    (loss(ddp, share_of(input, rows), share_of(target, rows)) * kolo::size()).backward();
    loss(alone, input, target).backward();
    optimizer.step();
    reference.step();
  }
  for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
    EXPECT_TRUE(torch::allclose(mine->parameters()[i], alone->parameters()[i], 1e-7, 1e-9)) << i;
  }
  for (std::size_t i = 0; i < alone->buffers().size(); ++i) {
    EXPECT_TRUE(torch::allclose(mine->buffers()[i], alone->buffers()[i], 1e-7, 1e-9)) << i;
  }
}

struct BlockImpl : torch::nn::Module {
  torch::nn::BatchNorm2d norm{register_module("norm", torch::nn::BatchNorm2d(2))};
  torch::Tensor forward(torch::Tensor x) { return norm(x); }
};
TORCH_MODULE(Block);

TEST(SyncBatchNorm, NamesWhatItCannotConvert) {
  torch::nn::Sequential mixed(torch::nn::BatchNorm2d(2), Block());
  EXPECT_THAT(
      message_of([&] { kolo::convert_sync_batchnorm(*mixed); }),
      AllOf(HasSubstr("'1.norm' (of "), HasSubstr("BlockImpl)"), HasSubstr("kolo::SyncBatchNorm")));
  EXPECT_NE(mixed[0]->as<torch::nn::BatchNorm2d>(), nullptr) << "as it was";
  torch::nn::BatchNorm1d itself(2);
  EXPECT_THAT(message_of([&] { kolo::convert_sync_batchnorm(*itself); }), HasSubstr("itself"));
}

TEST(SyncBatchNorm, ConvertsABlockOfTwoNamesOnce) {
  struct Tied : torch::nn::Module {};
  Tied tied;
  torch::nn::Sequential block(torch::nn::BatchNorm2d(2));
  tied.register_module("one", block);
  tied.register_module("other", block);
  EXPECT_EQ(kolo::convert_sync_batchnorm(tied), 1U);
  EXPECT_NE(block[0]->as<SyncBatchNorm>(), nullptr);
}

TEST(SyncBatchNorm, TakesTheTensorsOver) {
  torch::nn::BatchNorm3d plain(BatchNormOptions(2).momentum(0.3));
  plain->eval();
  SyncBatchNorm made(*plain);
  EXPECT_FALSE(made->is_training());
  EXPECT_EQ(made->options.momentum(), 0.3);
  EXPECT_EQ(made->parameters()[0].unsafeGetTensorImpl(), plain->weight.unsafeGetTensorImpl());
  EXPECT_EQ(made->buffers()[0].const_data_ptr(), plain->running_mean.const_data_ptr());
  EXPECT_EQ(made->buffers()[0].unsafeGetTensorImpl(), made->running_mean.unsafeGetTensorImpl());
  std::ostringstream text;
  text << *made;
  EXPECT_THAT(text.str(), HasSubstr("kolo::SyncBatchNorm(2, eps=1e-05, momentum=0.3, affine=true"));
}

TEST(SyncBatchNorm, SaysWhatIsWrong) {
  SyncBatchNorm norm(BatchNormOptions(3));
  EXPECT_THAT(message_of([&] { norm(torch::ones({4})); }),
              AllOf(HasSubstr("of 3 channels"), HasSubstr("[4]")));
  EXPECT_THAT(message_of([&] { norm(torch::ones({4, 2, 1})); }), HasSubstr("[4, 2, 1]"));
  EXPECT_THAT(message_of([&] {
                norm(torch::ones({4, 3}, torch::kInt32));
              }),
              HasSubstr("the input is of type Int"));
  const auto one = torch::ones({kolo::rank() == 0 ? 1 : 0, 3});
  EXPECT_THAT(message_of([&] { norm(one); }), HasSubstr("1 values in the batches of all ranks"));
  EXPECT_EQ(norm->num_batches_tracked.item<int>(),
            0);  // else a mean over all batches would count it
  if (kolo::size() == 1) return;
  auto input = torch::randn({2, 3}).requires_grad_();
  EXPECT_THAT(
      message_of([&] {
        static_cast<void>(torch::autograd::grad({norm(input).sum()}, {input}, {}, true, true));
      }),
      HasSubstr("create_graph"));
  // Errors must name the layer.
  const std::string name = "SyncBatchNorm of 3 channels, forward on cpu";
  EXPECT_THAT(message_of([&] {
                if (kolo::rank() == 1)
                  kolo::allreduce(torch::ones({7}), {.name = name});
                else
                  norm(input);
              }),
              HasSubstr("tensor '" + name + "': rank"));
}

}  // namespace
