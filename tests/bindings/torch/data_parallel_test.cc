// DataParallel with replicas on the CPU against the module alone. All ranks do the same.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using kolo::DataParallel;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;

const torch::Device kCpu = torch::kCPU;

torch::nn::Sequential two_layers() {
  torch::nn::Sequential network(torch::nn::Linear(5, 8), torch::nn::Tanh(),
                                torch::nn::Linear(8, 3));
  network->to(torch::kFloat64);
  return network;
}

TEST(DataParallel, EqualsOneDeviceForFiftySteps) {
  for (const std::size_t devices : {1, 2, 3, 8}) {
    torch::manual_seed(1);
    auto alone = two_layers();
    torch::manual_seed(1);
    DataParallel model(two_layers(), {.device_ids = std::vector(devices, kCpu)});
    torch::optim::AdamW optimizer(model.parameters(), 1e-2);
    torch::optim::AdamW reference(alone->parameters(), 1e-2);
    for (int step = 0; step < 50; ++step) {
      const auto input = torch::randn({7, 5}, torch::kFloat64);
      const auto target = torch::randn({7, 3}, torch::kFloat64);
      optimizer.zero_grad();
      reference.zero_grad();
      const auto output = model.forward(input);
      ASSERT_EQ(output.sizes(), target.sizes());
      torch::mse_loss(output, target).backward();
      torch::mse_loss(alone->forward(input), target).backward();
      for (std::size_t i = 0; i < alone->parameters().size(); ++i) {
        ASSERT_TRUE(torch::allclose(model.parameters()[i].grad(), alone->parameters()[i].grad()))
            << "step " << step << ", parameter " << i;
      }
      optimizer.step();
      reference.step();
    }
  }
}

/// Takes and returns all kinds of values; notes its threads.
struct EverythingImpl : torch::nn::Cloneable<EverythingImpl> {
  EverythingImpl() { reset(); }
  void reset() override { weight = register_parameter("weight", torch::ones({1})); }
  using Output = std::tuple<torch::Tensor, std::vector<torch::Tensor>,
                            std::pair<torch::Tensor, std::optional<torch::Tensor>>>;
  Output forward(const torch::Tensor& rows, const std::vector<torch::Tensor>& more,
                 const std::optional<torch::Tensor>& maybe, double factor,
                 const std::string& text) {
    ++calls;
    EXPECT_EQ(text, "hello");
    EXPECT_EQ(torch::GradMode::is_enabled(), grad_mode);
    const auto out = rows * weight * factor;
    return {out, {more[0] + 1, out.sum()}, {out * 2, maybe}};
  }
  torch::Tensor weight;
  static inline std::atomic<int> calls = 0;
  static inline std::atomic<bool> grad_mode = true;
};
TORCH_MODULE(Everything);

TEST(DataParallel, DealsOutAndGathersWhatHoldsTensors) {
  DataParallel model(Everything(), {.device_ids = {kCpu, kCpu, kCpu}});
  const auto rows = torch::arange(8.0).view({4, 2});
  EverythingImpl::calls = 0;
  const auto [out, both, pair] =
      model.forward(rows, std::vector<torch::Tensor>{rows}, std::optional(torch::tensor(3.0)), 0.5,
                    std::string("hello"));
  EXPECT_EQ(EverythingImpl::calls, 2) << "two rows each: no third part";
  EXPECT_TRUE(torch::equal(out, rows * 0.5));
  EXPECT_TRUE(torch::equal(both[0], rows + 1));
  EXPECT_TRUE(torch::equal(both[1], torch::tensor({3.0, 11.0}))) << "scalars side by side";
  EXPECT_TRUE(torch::equal(pair.first, rows));
  EXPECT_TRUE(torch::equal(*pair.second, torch::tensor({3.0, 3.0})));
  out.sum().backward();
  EXPECT_EQ(model.module()->weight.grad().item<double>(), 14);
}

struct TakesAMap : torch::nn::Module {
  torch::Tensor forward(const std::map<std::string, torch::Tensor>& input) { return input.at("x"); }
};

TEST(DataParallel, ArgumentsWhoseTensorsAreNotDealtOutAreKnown) {
  using torch::Tensor;
  // forward() checks this at compile time: otherwise every replica would compute the whole batch.
  static_assert(!kolo::is_shareable<std::map<std::string, Tensor>>());
  static_assert(!kolo::is_shareable<torch::TensorList>());
  static_assert(!kolo::is_shareable<std::tuple<Tensor, int>>());
  static_assert(!kolo::is_shareable<std::vector<std::optional<std::list<Tensor>>>>());
  static_assert(kolo::is_shareable<std::vector<Tensor>>());
  static_assert(kolo::is_shareable<std::optional<std::pair<Tensor, Tensor>>>());
  static_assert(kolo::is_shareable<std::vector<std::string>>());
  static_assert(kolo::is_shareable<std::filesystem::path>());
  static_assert(kolo::is_shareable<double>());
  static_assert(!kolo::Replicable<TakesAMap&, std::map<std::string, Tensor>&>);
  static_assert(kolo::Replicable<torch::nn::LinearImpl&, Tensor&>);
}

TEST(DataParallel, ThreadsHaveTheCallersSettings) {
  DataParallel model(Everything(), {.device_ids = {kCpu, kCpu}});
  EverythingImpl::grad_mode = false;
  {
    const torch::NoGradGuard no_grad;
    const auto out = model(torch::ones({2, 1}), std::vector<torch::Tensor>{torch::ones({2})},
                           std::optional<torch::Tensor>(), 1.0, std::string("hello"));
    EXPECT_FALSE(std::get<0>(out).requires_grad());
    EXPECT_FALSE(std::get<2>(out).second.has_value());
  }
  EverythingImpl::grad_mode = true;
  DataParallel layer(torch::nn::Linear(2, 2), {.device_ids = {kCpu, kCpu}});
  const kolo::Autocast half(kCpu);
  EXPECT_EQ(layer.forward(torch::ones({2, 2})).scalar_type(), torch::kBFloat16);
}

/// Each replica waits for the other to arrive.
struct MeetingImpl : torch::nn::Cloneable<MeetingImpl> {
  MeetingImpl() { reset(); }
  void reset() override { weight = register_parameter("weight", torch::ones({1})); }
  torch::Tensor forward(const torch::Tensor& rows) {
    const int goal = (come.fetch_add(1) / 2 + 1) * 2;
    while (come.load() < goal) std::this_thread::yield();
    if (rows[0].item<double>() < 0) throw std::out_of_range("negative");
    return rows * weight;
  }
  torch::Tensor weight;
  static inline std::atomic<int> come = 0;
};
TORCH_MODULE(Meeting);

TEST(DataParallel, ReplicasComputeAtTheSameTime) {
  DataParallel model(Meeting(), {.device_ids = {kCpu, kCpu}});
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(torch::equal(model.forward(torch::arange(4.0)), torch::arange(4.0)));
  }
  EXPECT_THROW(model.forward(torch::tensor({1.0, 1.0, -1.0, 1.0})), std::out_of_range);
  EXPECT_EQ(model.forward(torch::ones({2})).size(0), 2) << "goes on";
}

TEST(DataParallel, BuffersAreTheFirstParts) {
  DataParallel model(torch::nn::BatchNorm1d(1), {.device_ids = {kCpu, kCpu}});
  model.forward(torch::tensor({{1.0}, {3.0}, {100.0}, {200.0}}, torch::kFloat32));
  EXPECT_NEAR(model.module()->running_mean.item<double>(), 0.2, 1e-6);
  EXPECT_EQ(model.module()->num_batches_tracked.item<std::int64_t>(), 1);
  model.eval();
  EXPECT_FALSE(model.is_training());
  EXPECT_NEAR(model.forward(torch::zeros({2, 1}))[1].item<double>(), -0.2, 0.2) << "copies, too";
}

TEST(DataParallel, FrozenParametersAndSeveralBackwards) {
  DataParallel model(torch::nn::Linear(2, 1), {.device_ids = {kCpu, kCpu}});
  model.module()->bias.requires_grad_(false);
  for (int pass = 1; pass <= 2; ++pass) {
    model.forward(torch::ones({4, 2})).sum().backward();
    EXPECT_TRUE(torch::equal(model.module()->weight.grad(), torch::full({1, 2}, 4.0 * pass)));
  }
  EXPECT_FALSE(model.module()->bias.grad().defined());
  EXPECT_EQ(DataParallel(torch::nn::Linear(2, 1)).output_device().is_cuda(),
            torch::cuda::is_available());
}

TEST(DataParallel, EvaluatesWithinInferenceMode) {
  auto alone = two_layers();
  alone->push_back(torch::nn::BatchNorm1d(3));
  alone->to(torch::kFloat64);
  DataParallel model(alone, {.device_ids = {kCpu, kCpu}});
  model.eval();
  const auto input = torch::randn({4, 5}, torch::kFloat64);
  {
    const c10::InferenceMode inference;
    const auto output = model.forward(input);
    EXPECT_TRUE(output.is_inference());
    EXPECT_TRUE(torch::allclose(output, alone->forward(input)));
    EXPECT_FALSE(torch::GradMode::is_enabled()) << "as before";
  }
  model.forward(input).sum().backward();
  EXPECT_TRUE(alone->parameters()[0].grad().defined()) << "goes on";
}

TEST(DataParallel, SparseGradients) {
  torch::nn::Embedding alone(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  torch::nn::Embedding layer(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  {
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(alone->weight);
  }
  DataParallel model(layer, {.device_ids = {kCpu, kCpu}});
  const auto rows = torch::tensor({1, 2, 1, 4});
  model.forward(rows).square().sum().backward();
  alone->forward(rows).square().sum().backward();
  ASSERT_TRUE(layer->weight.grad().is_sparse());
  EXPECT_TRUE(torch::allclose(layer->weight.grad().to_dense(), alone->weight.grad().to_dense()));
}

struct StubbornImpl : torch::nn::Module {
  torch::nn::Linear layer{register_module("layer", torch::nn::Linear(2, 1))};
  torch::Tensor forward(torch::Tensor x) { return layer(x); }
};
TORCH_MODULE(Stubborn);

struct GrowingImpl : torch::nn::Cloneable<GrowingImpl> {
  void reset() override {}
  std::vector<torch::Tensor> forward(const torch::Tensor& x) {
    return std::vector<torch::Tensor>(static_cast<std::size_t>(x[0].item<double>()), x);
  }
};
TORCH_MODULE(Growing);

/// Returns something only for positive input.
struct ReticentImpl : torch::nn::Cloneable<ReticentImpl> {
  void reset() override {}
  torch::Tensor forward(const torch::Tensor& x) {
    return x[0].item<double>() > 0 ? x : torch::Tensor();
  }
};
TORCH_MODULE(Reticent);

TEST(DataParallel, SaysWhatIsWrong) {
  const std::vector<torch::Device> two{kCpu, kCpu};
  const auto made = [](auto module, const kolo::DataParallelOptions& options) {
    return message_of([&] { DataParallel model(module, options); });
  };
  EXPECT_THAT(made(Stubborn(), {.device_ids = two}),
              AllOf(HasSubstr("StubbornImpl cannot be cloned"), HasSubstr("torch::nn::Cloneable")));
  EXPECT_EQ(made(Stubborn(), {.device_ids = {kCpu}}), "(no error)");
  EXPECT_THAT(made(torch::nn::Linear(2, 1), {.device_ids = {torch::Device(torch::kMeta), kCpu}}),
              AllOf(HasSubstr("parameter 'weight' is on cpu"), HasSubstr("first device is meta")));
  torch::nn::Linear split(2, 1);
  split->register_buffer("far", torch::ones({1}, torch::kMeta));
  EXPECT_THAT(made(split, {.device_ids = two}),
              AllOf(HasSubstr("buffer 'far' is on meta"), HasSubstr("first device is cpu")));
  EXPECT_THAT(made(kolo::SyncBatchNorm(2), {.device_ids = two}), HasSubstr("a process per device"));

  DataParallel moved(torch::nn::Linear(2, 1), {.device_ids = two});
  moved.module()->register_buffer("later", torch::ones({1}, torch::kMeta));
  EXPECT_THAT(message_of([&] {
                moved.forward(torch::ones({2, 2}));
              }),
              HasSubstr("buffer 'later' is on meta"));
  DataParallel bilinear(torch::nn::Bilinear(2, 2, 1), {.device_ids = two});
  EXPECT_THAT(message_of([&] {
                bilinear.forward(torch::ones({4, 2}), torch::ones({3, 2}));
              }),
              HasSubstr("sizes 4 and 3"));
  DataParallel growing(Growing(), {.device_ids = two});
  EXPECT_THAT(message_of([&] {
                growing.forward(torch::tensor({1.0, 2.0}));
              }),
              HasSubstr("1 tensors on the first replica, but 2"));
  DataParallel reticent(Reticent(), {.device_ids = two});
  for (const auto& input : {torch::tensor({-1.0, 1.0}), torch::tensor({1.0, -1.0})})
    EXPECT_THAT(message_of([&] { reticent.forward(input); }),
                HasSubstr("undefined tensor on one replica, but a tensor on another"));
}

}  // namespace
