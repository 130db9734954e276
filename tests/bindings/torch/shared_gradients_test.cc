// DistributedOptimizer's gradients in memory that the ranks of a host share: where they lie, that
// only their address tells, and what happens without such memory. On all ranks at once; the program
// also runs with a KOLO_ARENA that has no room for the gradients.
#include <kolo/torch.h>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::int64_t kLarge = 100'000;

/// Whether the tensor lies in unnamed memory that processes map, as kolo's window does.
bool is_mapped(const torch::Tensor& tensor) {
  const auto place = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    fields >> std::hex >> begin >> dash >> end;
    if (begin <= place && place < end) return line.find("/memfd:kolo") != std::string::npos;
  }
  return false;
}

/// Whether the gradients below fit into the arena: under mpirun, unless KOLO_ARENA is small.
bool has_room() { return kolo::runtime_info().arena_bytes > (1 << 20); }

double ranks_mean() { return (kolo::size() + 1) / 2.0; }

struct Weight {
  torch::Tensor w = torch::ones({kLarge}, torch::requires_grad());
  kolo::DistributedOptimizer<torch::optim::SGD> optimizer;

  explicit Weight(const kolo::DistributedOptimizerOptions& options = {})
      : optimizer(torch::optim::SGD({w}, 1.0), kolo::NamedTensors{{"w", w}}, options) {}
  void backward(double slope = 1) { (w * (slope * (kolo::rank() + 1))).sum().backward(); }
  void expect_gradient(double value) const {
    EXPECT_TRUE(torch::allclose(w.grad(), torch::full({kLarge}, value))) << w.grad()[0];
  }
};

TEST(SharedGradients, MoveWhenTheyStayAndRemain) {
  Weight weight;
  const void* place = nullptr;
  for (int step = 0; step < 4; ++step) {
    weight.optimizer.zero_grad(false);
    weight.backward(step + 1);
    weight.optimizer.synchronize();
    weight.expect_gradient((step + 1) * ranks_mean());
    const torch::Tensor& gradient = weight.w.grad();
    EXPECT_EQ(is_mapped(gradient), has_room() && step > 0) << "step " << step;
    if (has_room() && step > 1) {
      EXPECT_EQ(gradient.const_data_ptr(), place);
    }
    place = gradient.const_data_ptr();
  }
}

// For example a snapshot, or a worker that reads data: its writes to its parent's tensors must stay
// in the child.
TEST(SharedGradients, AForkedChildHasItsOwn) {
  Weight weight;
  for (int step = 0; step < 2; ++step) {
    weight.optimizer.zero_grad(false);
    weight.backward();
    weight.optimizer.synchronize();
  }
  const torch::Tensor gradient = weight.w.grad();
  ASSERT_EQ(is_mapped(gradient), has_room());
  const auto mean = static_cast<float>(ranks_mean());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // without LibTorch's threads, which are the parent's
    auto* const values = gradient.data_ptr<float>();
    const bool reads = values[0] == mean && weight.w.const_data_ptr<float>()[0] == 1;
    std::fill_n(values, kLarge, 0.0F);
    _exit(reads && values[kLarge - 1] == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  weight.expect_gradient(ranks_mean());
  kolo::barrier();
}

TEST(SharedGradients, StayOrdinaryWhileTheyAreMadeAnew) {
  Weight weight;
  for (int step = 0; step < 4; ++step) {
    weight.optimizer.zero_grad();
    weight.backward();
    weight.optimizer.synchronize();
    EXPECT_FALSE(is_mapped(weight.w.grad())) << "step " << step;
    if (step == 1) weight.optimizer.zero_grad(false);  // then it moves, and is freed
  }
}

TEST(SharedGradients, TrainAsOrdinaryOnesDo) {
  const auto train = [](bool shared, bool set_to_none, int passes) {
    torch::manual_seed(11);
    torch::nn::Sequential net(torch::nn::Linear(64, 300),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({300})),
                              torch::nn::Tanh(), torch::nn::Linear(300, 200));
    kolo::DistributedOptimizer optimizer(
        torch::optim::AdamW(net->parameters(), 1e-2), net->named_parameters(),
        {.backward_passes_per_step = passes, .shared_gradients = shared});
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad(set_to_none);
      for (int pass = 0; pass < passes + (step == 4 ? 1 : 0); ++pass) {
        torch::manual_seed(static_cast<std::uint64_t>(100 * step + 10 * pass + kolo::rank()));
        net->forward(torch::randn({5, 64})).square().mean().backward();
      }
      if (step == 3) net->parameters()[0].set_requires_grad(false);
      if (step == 4) net->parameters()[0].set_requires_grad(true);
      optimizer.step();
    }
    return net->parameters();
  };
  for (const bool set_to_none : {true, false}) {
    for (const int passes : {1, 2}) {
      const auto expected = train(false, set_to_none, passes);
      const auto trained = train(true, set_to_none, passes);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(torch::equal(trained[i], expected[i])) << i;
    }
  }
}

TEST(SharedGradients, AreTheSameTensorsAsBefore) {
  Weight weight;
  weight.backward();
  const torch::Tensor before = weight.w.grad();
  weight.optimizer.zero_grad(false);
  EXPECT_EQ(is_mapped(before), has_room());
  EXPECT_EQ(before.abs().max().item<float>(), 0);
  weight.backward();
  weight.optimizer.synchronize();
  EXPECT_TRUE(torch::allclose(before, torch::full({kLarge}, ranks_mean())));
  // A gradient that is kept after zero_grad() belongs to its keeper alone.
  weight.optimizer.zero_grad();
  weight.backward(5);
  weight.optimizer.synchronize();
  weight.expect_gradient(5 * ranks_mean());
  EXPECT_TRUE(torch::allclose(before, torch::full({kLarge}, ranks_mean())));
}

TEST(SharedGradients, MoveWhereOtherRanksHaveMadeThem) {
  Weight weight;
  for (int step = 0; step < 3; ++step) {
    weight.optimizer.zero_grad(false);
    if (kolo::rank() == 0) weight.backward();
    weight.optimizer.synchronize();
    weight.expect_gradient(1.0 / kolo::size());
    EXPECT_EQ(is_mapped(weight.w.grad()), has_room() && step > 0) << "step " << step;
  }
}

TEST(SharedGradients, LeaveWhatLiesInTheirPlace) {
  Weight weight;
  weight.backward();
  weight.optimizer.zero_grad(false);
  weight.backward();
  weight.optimizer.synchronize();
  const torch::Tensor before = std::exchange(weight.w.mutable_grad(), torch::Tensor());
  for (int step = 0; step < 2; ++step) {
    weight.backward(7);
    weight.optimizer.zero_grad(false);
  }
  EXPECT_TRUE(torch::allclose(before, torch::full({kLarge}, ranks_mean())));
}

TEST(SharedGradients, GiveTheirMemoryBackWhenTheyGo) {
  torch::Tensor w = torch::ones({10'000}, torch::requires_grad());
  kolo::DistributedOptimizer optimizer(torch::optim::SGD({w}, 1.0), kolo::NamedTensors{{"w", w}});
  w.sum().backward();
  optimizer.zero_grad(false);
  EXPECT_EQ(is_mapped(w.grad()), is_mapped(kolo::shared_zeros({1})));
  optimizer.zero_grad();
  // A small arena has room for one of them.
  EXPECT_EQ(kolo::shared_zeros({10'000}).sum().item<float>(), 0);
}

TEST(SharedGradients, MoveOnceNobodyElseHoldsTheirMemory) {
  Weight weight;
  weight.backward();
  {
    const torch::Tensor view = weight.w.grad().slice(0, 0, 10);
    weight.optimizer.zero_grad(false);
    weight.backward();
    weight.optimizer.synchronize();
    EXPECT_FALSE(is_mapped(weight.w.grad()));
    EXPECT_FLOAT_EQ(view[9].item<float>(), static_cast<float>(ranks_mean()));
  }
  weight.optimizer.zero_grad(false);
  EXPECT_EQ(is_mapped(weight.w.grad()), has_room());
}

TEST(SharedGradients, StayWhereTheUserHasPutThem) {
  Weight weight;
  std::vector<float> own(kLarge);
  weight.w.mutable_grad() = torch::from_blob(own.data(), {kLarge});
  for (int step = 0; step < 3; ++step) {
    weight.optimizer.zero_grad(false);
    weight.backward();
    weight.optimizer.synchronize();
    EXPECT_FLOAT_EQ(own[kLarge - 1], static_cast<float>(ranks_mean()));
  }
  // After a gradient that has moved was replaced, and after a backward that has made one.
  weight.w.mutable_grad() = torch::Tensor();
  weight.backward();
  weight.optimizer.zero_grad(false);
  weight.w.mutable_grad() = torch::from_blob(own.data(), {kLarge});
  weight.backward();
  weight.optimizer.zero_grad(false);
  EXPECT_EQ(weight.w.grad().const_data_ptr(), own.data());
}

TEST(SharedGradients, ASecondBackwardAddsToThem) {
  Weight weight;
  for (int step = 0; step < 3; ++step) {
    weight.optimizer.zero_grad(false);
    weight.backward(1);
    weight.backward(2);
    weight.optimizer.synchronize();
    weight.expect_gradient(3 * ranks_mean());
  }
  weight.optimizer.zero_grad(false);
  EXPECT_EQ(is_mapped(weight.w.grad()), has_room());
}

TEST(SharedGradients, OfSparseOnesThatTravelDense) {
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(20'000, 2).sparse(true));
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(embedding->parameters(), 1.0),
                                       embedding->named_parameters(), {.sparse_as_dense = true});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad(false);
    embedding->forward(torch::tensor({kolo::rank(), 19'999}, torch::kInt64)).sum().backward();
    optimizer.synchronize();
    const torch::Tensor& gradient = embedding->weight.grad();
    EXPECT_EQ(is_mapped(gradient), has_room() && step > 0);
    EXPECT_FLOAT_EQ(gradient[19'999][0].item<float>(), 1);
    EXPECT_FLOAT_EQ(gradient[0][1].item<float>(), 1.0F / static_cast<float>(kolo::size()));
    EXPECT_FLOAT_EQ(gradient.sum().item<float>(), 4);
  }
}

TEST(SharedGradients, LieInOrdinaryMemoryWhereAsked) {
  Weight off({.shared_gradients = false});
  off.backward();
  off.optimizer.zero_grad(false);
  EXPECT_FALSE(is_mapped(off.w.grad()));
  // With compression, the gradient itself does not travel.
  Weight compressed({.compression = kolo::compression::fp16()});
  compressed.backward();
  compressed.optimizer.zero_grad(false);
  EXPECT_FALSE(is_mapped(compressed.w.grad()));
}

}  // namespace
