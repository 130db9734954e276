// Gradients of a DistributedOptimizer that travel sparse: they equal those of one process, also
// where ranks have none, or not the same kind. On all ranks at once.
#include "tests/support/message_of.h"
#include "tests/support/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kolo::test;
using testing::AllOf;
using testing::HasSubstr;
using torch::nn::EmbeddingOptions;

constexpr std::int64_t kRows = 20;

struct Words : torch::nn::Module {
  torch::nn::Embedding table =
      register_module("table", torch::nn::Embedding(EmbeddingOptions(kRows, 3).sparse(true)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(3, 2));

  Words() {
    torch::manual_seed(5);
    for (auto& parameter : parameters())
      parameter.data().copy_(torch::randn(parameter.sizes(), torch::kFloat64));
    to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& words) { return head(table(words)).pow(2).mean(); }
};

/// The words of a rank in a step; some come twice, and on other ranks, too.
torch::Tensor words_of(int rank, int step) {
  return torch::tensor({rank, 7 + step, (3 * rank + step) % 5, 7 + step}, torch::kInt64);
}

void expect_alike(const torch::nn::Module& net, const torch::nn::Module& alone) {
  for (const auto& item : net.named_parameters())
    EXPECT_TRUE(torch::allclose(item.value(), alone.named_parameters()[item.key()], 1e-9, 1e-10))
        << item.key() << ": " << item.value();
}

/// Trains with the gradients of all ranks, and alone on all their words.
template <class Optimizer, class Make>
void train_beside_one_process(const Make& make, const kolo::DistributedOptimizerOptions& options) {
  Words net;
  Words alone;
  kolo::DistributedOptimizer<Optimizer> optimizer(make(net.parameters()), net.named_parameters(),
                                                  options);
  Optimizer other = make(alone.parameters());
  const kolo::ProcessSet& set = options.process_set;
  const double divisor = options.op == kolo::ReduceOp::kSum ? 1 : set.size();
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    other.zero_grad();
    for (int pass = 0; pass < options.backward_passes_per_step; ++pass) {
      net.forward(words_of(kolo::rank(), 2 * step + pass)).backward();
      for (const int rank : set.ranks())
        (alone.forward(words_of(rank, 2 * step + pass)) / divisor).backward();
    }
    ASSERT_TRUE(net.table->weight.grad().is_sparse());
    EXPECT_TRUE(net.table->weight.grad().is_coalesced());
    optimizer.step();
    other.step();
    expect_alike(net, alone);
  }
}

torch::optim::SGD sgd(std::vector<torch::Tensor> parameters) {
  return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(0.1));
}

TEST(SparseGradients, TrainAsOneProcessDoes) {
  train_beside_one_process<torch::optim::SGD>(sgd, {});
  train_beside_one_process<torch::optim::SGD>(sgd, {.op = kolo::ReduceOp::kSum});
  train_beside_one_process<torch::optim::SGD>(sgd, {.backward_passes_per_step = 2});
  train_beside_one_process<torch::optim::SGD>(sgd, {.gradient_predivide_factor = 8});
  train_beside_one_process<torch::optim::Adagrad>(
      [](std::vector<torch::Tensor> parameters) {
        return torch::optim::Adagrad(std::move(parameters), torch::optim::AdagradOptions(0.1));
      },
      {});
}

TEST(SparseGradients, OfAProcessSetAreItsRanks) {
  if (kolo::size() < 3) GTEST_SKIP() << "takes three ranks; CTest runs this with 3 and 4";
  const kolo::ProcessSet set = kolo::add_process_set({0, kolo::size() - 1});
  if (set.contains(kolo::rank()))
    train_beside_one_process<torch::optim::SGD>(sgd, {.process_set = set});
  kolo::remove_process_set(set);
}

TEST(SparseGradients, AreTakenAsTheyAreByACompressor) {
  Words net;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters(),
                                       {.compression = kolo::compression::bf16()});
  const torch::Tensor third = torch::full({1, 3}, 1.0 / 3, torch::kFloat64);
  (net.table(torch::tensor({2}, torch::kInt64)) * third).sum().backward();
  optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(net.table->weight.grad().to_dense()[2], third[0], 1e-14, 1e-14));
}

TEST(SparseGradients, ARankWithoutOneTakesPart) {
  for (const bool makes_a_backward : {true, false}) {
    Words net;
    kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters());
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      if (kolo::rank() == 0) {
        net.table(torch::tensor({1, 1, 4}, torch::kInt64)).sum().backward();
      } else if (makes_a_backward) {
        net.head(torch::ones({1, 3}, torch::kFloat64)).sum().backward();
      }
      if (kolo::rank() == 0 && kolo::size() > 1) {
        EXPECT_THAT(message_of([&] { net.table->weight.grad().norm().item<double>(); }),
                    HasSubstr("Bool"));
      }
      optimizer.synchronize();
      const torch::Tensor& gradient = net.table->weight.grad();
      ASSERT_TRUE(gradient.defined() && gradient.is_sparse());
      auto wanted = torch::zeros({kRows, 3}, torch::kFloat64);
      wanted[1] = 2.0 / kolo::size();
      wanted[4] = 1.0 / kolo::size();
      EXPECT_TRUE(torch::allclose(gradient.to_dense(), wanted)) << gradient;
      EXPECT_EQ(net.head->weight.grad().defined(), makes_a_backward && kolo::size() > 1);
      optimizer.step();
    }
  }
}

TEST(SparseGradients, ThatNoRankHasStayUndefined) {
  Words net;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters());
  for (const bool has_words : {true, false, false}) {
    optimizer.zero_grad();
    const auto words =
        has_words ? net.table(words_of(kolo::rank(), 0)) : torch::ones({1, 3}, torch::kFloat64);
    net.head(words).sum().backward();
    optimizer.step();
    EXPECT_EQ(net.table->weight.grad().defined(), has_words);
  }
}

TEST(SparseGradients, AddUpOverPassesOfEitherKind) {
  Words net;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters());
  const auto words = torch::tensor({2, 2}, torch::kInt64);
  const auto sparse = [&] { (net.table(words).sum() * mine()).backward(); };
  const auto dense = [&] { (net.table->weight[2].sum() * mine()).backward(); };
  const auto expect_after = [&](const auto& first, const auto& second, double wanted) {
    optimizer.zero_grad();
    first();
    second();
    optimizer.synchronize();
    const torch::Tensor gradient = net.table->weight.grad().to_dense();
    EXPECT_NEAR(gradient[2][0].item<double>(), wanted * ranks_mean(), 1e-12);
    EXPECT_NEAR(gradient.sum().item<double>(), 3 * wanted * ranks_mean(), 1e-12);
  };
  expect_after(sparse, sparse, 4);
  expect_after(sparse, dense, 3);
  expect_after(dense, sparse, 3);
}

TEST(SparseGradients, AreWeighedBySamples) {
  Words net;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters(),
                                       {.gradient_predivide_factor = 2, .weigh_by_samples = true});
  for (const bool is_idle : {true, false, true}) {  // all but rank 0; else rank r has r + 1 samples
    const int samples = !is_idle ? kolo::rank() + 1 : kolo::rank() == 0 ? 5 : 0;
    optimizer.zero_grad();
    optimizer.set_sample_count(samples);
    const auto row = torch::full({samples}, kolo::rank(), torch::kInt64);
    if (samples > 0) net.table(row).sum(1).mean().backward();
    optimizer.synchronize();
    const torch::Tensor gradient = net.table->weight.grad();
    ASSERT_TRUE(gradient.is_sparse());
    for (int r = 0; r < kolo::size(); ++r) {
      const double wanted = is_idle ? r == 0 : (r + 1) / ranks_sum();
      EXPECT_NEAR(gradient.to_dense()[r][0].item<double>(), wanted, 1e-12);
    }
    optimizer.step();
  }
}

TEST(SparseGradients, OfOneRankBesideDenseOnesAreAnErrorOfAll) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  Words net;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters());
  net.table->options.sparse(is_last());
  const auto backward = [&] {
    optimizer.zero_grad();
    net.forward(words_of(kolo::rank(), 0)).backward();
  };
  EXPECT_THAT(message_of(backward), AllOf(HasSubstr("table.weight"), HasSubstr("allreduce"),
                                          HasSubstr("rank " + std::to_string(kolo::size() - 1) +
                                                    " submitted operation allgather"),
                                          HasSubstr("set sparse_as_dense")));
  for (const bool sparse : {false, true}) {
    net.table->options.sparse(sparse);
    backward();
    optimizer.step();
    EXPECT_EQ(net.table->weight.grad().is_sparse(), sparse);
  }
}

TEST(SparseGradients, OfOtherSizesOnARankAreAnErrorOfAll) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  Words net;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters());
  if (is_last()) net.table->weight.set_data(torch::zeros({kRows + 1, 3}, torch::kFloat64));
  EXPECT_THAT(message_of([&] { net.forward(words_of(kolo::rank(), 0)).backward(); }),
              AllOf(HasSubstr("table.weight"), HasSubstr("rank 0 has Double [20, 3]"),
                    HasSubstr("has Double [21, 3]")));
  optimizer.zero_grad();
}

TEST(SparseGradients, ThatWereSetByHandTravelInTheStep) {
  Words net;
  Words alone;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters());
  const auto sparse_of = [](int rank) {
    return torch::sparse_coo_tensor(torch::tensor({{rank}}, torch::kInt64),
                                    torch::full({1, 3}, rank + 1.0, torch::kFloat64), {kRows, 3});
  };
  net.table->weight.mutable_grad() = sparse_of(kolo::rank());
  optimizer.step();
  const torch::NoGradGuard no_grad;
  for (int r = 0; r < kolo::size(); ++r)
    alone.table->weight.add_(sparse_of(r), -0.1 / kolo::size());
  expect_alike(net, alone);
}

TEST(SparseGradients, ThatWereTouchedUnderWayAreNamed) {
  if (kolo::size() == 1) GTEST_SKIP() << "takes two ranks; CTest runs this with 2 to 4";
  Words net;
  kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters());
  if (!is_last()) {
    net.table(words_of(0, 0)).sum().backward();
    net.table->weight.mutable_grad() = torch::ones_like(net.table->weight);
  }
  const std::string message = message_of([&] { optimizer.step(); });
  EXPECT_THAT(message, HasSubstr(is_last() ? "(no error)" : "table.weight' was replaced"));
  optimizer.zero_grad();
}

TEST(SparseGradients, OfAGroupOrAdasumAreRefusedByName) {
  const auto message_with = [](const kolo::DistributedOptimizerOptions& options) {
    Words net;
    kolo::DistributedOptimizer optimizer(sgd(net.parameters()), net.named_parameters(), options);
    return message_of([&] {
      net.forward(words_of(kolo::rank(), 0)).backward();
      optimizer.step();
    });
  };
  EXPECT_THAT(message_with({.groups = 1}),
              HasSubstr("table.weight' is sparse, and a group's gradients are dense; set "
                        "sparse_as_dense"));
  EXPECT_THAT(message_with({.op = kolo::ReduceOp::kAdasum}),
              HasSubstr("table.weight' is sparse, and adasum combines dense gradients"));
}

}  // namespace
