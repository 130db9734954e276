// torch's own users of c10d on kolo, under mpirun: torch's Reducer (the core of its
// DistributedDataParallel) trains as kolo's optimizer does, and torch's stores bring ranks
// together.
#include <kolo/c10d.h>
#include <kolo/torch.h>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

torch::nn::Sequential make_model() {
  torch::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 4));
}

torch::Tensor loss_of(torch::nn::Sequential& model, int step) {
  torch::manual_seed(1000 + 10 * step + kolo::rank());
  const auto output = model->forward(torch::randn({16, 8}));
  return output.square().mean();
}

TEST(Reducer, TrainsAsDistributedOptimizer) {
  auto theirs = make_model();
  auto ours = make_model();
  const auto parameters = theirs->parameters();
  // Two buckets, in the order in which backward computes gradients.
  c10d::Reducer reducer(parameters, {{2, 3}, {0, 1}}, kolo::process_group(),
                        std::vector<bool>(parameters.size(), false), 1 << 20,
                        /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false, {},
                        1 << 20, /*skip_all_reduce_unused_params=*/false,
                        /*use_python_reducer=*/false, {});
  torch::optim::SGD sgd(parameters, 0.1);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(ours->parameters(), 0.1),
                                       ours->named_parameters());
  for (int step = 0; step < 5; ++step) {
    sgd.zero_grad();
    reducer.prepare_for_forward();
    const auto loss = loss_of(theirs, step);
    reducer.prepare_for_backward({loss});
    loss.backward();
    sgd.step();

    optimizer.zero_grad();
    loss_of(ours, step).backward();
    optimizer.step();
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(torch::allclose(parameters[i], ours->parameters()[i], 1e-5, 1e-6)) << i;
  // The ranks had different samples, and must have one model.
  const auto sum = kolo::allreduce(parameters[0].detach(), {.name = "model"});
  EXPECT_TRUE(torch::allclose(sum, parameters[0] * kolo::size(), 1e-5, 1e-6));
}

TEST(Store, OfTorchBringsRanksTogether) {
  std::string path;
  if (kolo::rank() == 0) {
    char name[] = "/tmp/kolo-c10d-store-XXXXXX";
    const int file = mkstemp(name);
    ASSERT_GE(file, 0);
    close(file);
    path = name;
  }
  path = kolo::broadcast_object(path, 0);
  const int rank = kolo::rank();
  const int size = kolo::size();
  kolo::shutdown();
  {
    const auto store = c10::make_intrusive<c10d::FileStore>(path, size);
    kolo::init({.rank = rank, .size = size, .store = kolo::key_value_store(store)});
  }
  EXPECT_EQ(kolo::rank(), rank);
  const auto sum = kolo::allreduce(torch::ones({2}));
  EXPECT_EQ(sum[0].item<float>(), static_cast<float>(size));
  kolo::barrier();
  if (rank == 0) unlink(path.c_str());
}

}  // namespace
