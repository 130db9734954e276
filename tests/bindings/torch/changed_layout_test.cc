// Parameters whose memory changes after they were wrapped. New strides, on all ranks or on some,
// train as in one process. New sizes, new types and memory that two parameters share are refused on
// all ranks, by name. On all ranks at once.
#include "tests/support/ddp_ranks.h"
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using kolo::DdpOptions;
using kolo::DistributedDataParallel;
using kolo::DistributedOptimizer;
using kolo::ShardedOptimizer;
using kolo::test::average_bucket;
using kolo::test::message_of;
using testing::AllOf;
using testing::HasSubstr;
using torch::nn::Conv2d;
using torch::optim::AdamW;
using torch::optim::SGD;

constexpr auto kChannelsLast = torch::MemoryFormat::ChannelsLast;

bool is_last() { return kolo::rank() == kolo::size() - 1; }
std::string last_rank() { return "rank " + std::to_string(kolo::size() - 1); }

Conv2d convolution() {
  torch::manual_seed(1);
  Conv2d module(torch::nn::Conv2dOptions(3, 4, 2));
  module->to(torch::kFloat64);
  return module;
}

void set_data(const torch::Tensor& tensor, const torch::Tensor& data) {
  const torch::NoGradGuard no_grad;
  tensor.set_data(data);
}

void to_channels_last(Conv2d& module) {
  set_data(module->weight, module->weight.contiguous(kChannelsLast));
}

torch::Tensor loss_of(torch::nn::Conv2dImpl& module, int step, int rank) {
  torch::manual_seed(static_cast<std::uint64_t>(1000 * step + rank));
  return module.forward(torch::randn({2, 3, 4, 4}, torch::kFloat64)).pow(2).mean();
}

/// One process: the mean of all ranks' losses.
struct Alone {
  Conv2d module = convolution();
  AdamW optimizer{module->parameters(), torch::optim::AdamWOptions(0.01)};
  void step(int step) {
    optimizer.zero_grad();
    torch::Tensor loss = torch::zeros({});
    for (int r = 0; r < kolo::size(); ++r) loss = loss + loss_of(*module, step, r) / kolo::size();
    loss.backward();
    optimizer.step();
  }
};

struct Kind {
  const char* name;
  bool ddp = false, reduces = false, shards = false;
  DdpOptions options = {};
  bool hook = false;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {.name = "ddp", .ddp = true},
      {.name = "ddp without views", .ddp = true, .options = {.gradient_as_bucket_view = false}},
      {.name = "ddp with a hook",
       .ddp = true,
       .options = {.gradient_as_bucket_view = false},
       .hook = true},
      {.name = "optimizer", .reduces = true},
      {.name = "shards", .shards = true},
      {.name = "ddp and shards", .ddp = true, .shards = true},
      {.name = "ddp without views, and shards",
       .ddp = true,
       .shards = true,
       .options = {.gradient_as_bucket_view = false}}};
  return all;
}

/// A module and how it is trained.
struct Trainer {
  explicit Trainer(const Kind& kind, Conv2d of = convolution()) : module(std::move(of)) {
    if (kind.ddp) ddp = std::make_unique<DistributedDataParallel<Conv2d>>(module, kind.options);
    if (kind.hook) ddp->register_comm_hook(average_bucket);
    AdamW made(module->parameters(), torch::optim::AdamWOptions(0.01));
    const auto named = module->named_parameters();
    if (kind.reduces) {
      reducing = std::make_unique<DistributedOptimizer<AdamW>>(std::move(made), named);
    } else if (kind.shards) {
      sharded = std::make_unique<ShardedOptimizer<AdamW>>(
          std::move(made), named, kolo::ShardedOptimizerOptions{.gradients_are_reduced = kind.ddp});
    } else {
      plain = std::make_unique<AdamW>(std::move(made));
    }
  }
  torch::optim::Optimizer& optimizer() {
    if (plain) return *plain;
    return sharded ? static_cast<torch::optim::Optimizer&>(*sharded) : *reducing;
  }
  void backward(int step) {
    if (sharded) {
      sharded->zero_grad();
    } else if (reducing) {
      reducing->zero_grad();
    } else {
      plain->zero_grad();
    }
    torch::manual_seed(static_cast<std::uint64_t>(1000 * step + kolo::rank()));
    const auto input = torch::randn({2, 3, 4, 4}, torch::kFloat64);
    (ddp ? ddp->forward(input) : module->forward(input)).pow(2).mean().backward();
  }
  void step(int number) {
    backward(number);
    optimizer().step();
  }

  Conv2d module;
  std::unique_ptr<DistributedDataParallel<Conv2d>> ddp;
  std::unique_ptr<AdamW> plain;
  std::unique_ptr<DistributedOptimizer<AdamW>> reducing;
  std::unique_ptr<ShardedOptimizer<AdamW>> sharded;
};

void expect_same(Trainer& trainer, Alone& alone, const std::string& what) {
  const double difference =
      (trainer.module->weight - alone.module->weight).abs().max().item<double>();
  EXPECT_LT(difference, 1e-12) << what;
}

TEST(ChangedLayout, OtherStridesTrainAsOneProcess) {
  const std::vector<std::pair<const char*, std::function<bool()>>> ranks{
      {"all", [] { return true; }},
      {"rank 0 alone", [] { return kolo::rank() == 0; }},
      {"odd ranks", [] { return kolo::rank() % 2 == 1; }}};
  for (const Kind& kind : kinds()) {
    for (const auto& [who, changes] : ranks) {
      for (const int when : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message() << kind.name << ", " << who << ", before step " << when);
        Trainer trainer(kind);
        Alone alone;
        for (int step = 0; step < 5; ++step) {
          if (step == when && changes()) to_channels_last(trainer.module);
          if (step == 4 && changes())  // neither of the two, with gaps
            set_data(trainer.module->weight,
                     torch::stack({trainer.module->weight.detach(),
                                   torch::zeros_like(trainer.module->weight)},
                                  -1)
                         .select(-1, 0));
          trainer.step(step);
          alone.step(step);
          expect_same(trainer, alone, "after step " + std::to_string(step));
        }
      }
    }
  }
}

TEST(ChangedLayout, BetweenBackwardAndStep) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    Trainer trainer(kind);
    Alone alone;
    for (int step = 0; step < 3; ++step) {
      trainer.backward(step);
      if (step == 1 && kolo::rank() == 0) to_channels_last(trainer.module);
      trainer.optimizer().step();
      alone.step(step);
      expect_same(trainer, alone, "after step " + std::to_string(step));
    }
  }
}

/// The last rank does not use the convolution.
struct SkippingImpl : torch::nn::Module {
  Conv2d conv = register_module("conv", convolution());
  torch::Tensor scale = register_parameter("scale", torch::ones({1}, torch::kFloat64));
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor scaled = input * scale;
    return (is_last() ? scaled : conv->forward(scaled)).sum();
  }
};

// Where strides differ by rank, a norm of all gradients does in its last bits.
TEST(ChangedLayout, GradientsThatOnlyOtherRanksMakeHaveTheStridesOfTheirs) {
  if (kolo::size() == 1) return;
  const auto input = torch::ones({2, 3, 4, 4}, torch::kFloat64);
  for (const char* kind : {"ddp", "ddp with a hook", "optimizer"}) {
    for (const bool has_gaps : {false, true}) {
      SCOPED_TRACE(testing::Message() << kind << has_gaps);
      const auto model = std::make_shared<SkippingImpl>();
      const torch::Tensor weight = model->conv->weight;
      const auto change = [&] {
        const torch::Tensor last = weight.detach().permute({0, 2, 3, 1}).contiguous();
        const torch::Tensor data = has_gaps ? torch::stack({last, last}, -1).select(-1, 0) : last;
        set_data(weight, data.permute({0, 3, 1, 2}));
      };
      if (kind == std::string("optimizer")) {
        DistributedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
        change();
        model->forward(input).backward();
        optimizer.synchronize();
      } else {
        DistributedDataParallel ddp(
            model, DdpOptions{.find_unused_parameters = true, .gradient_as_bucket_view = false});
        if (kind != std::string("ddp")) ddp.register_comm_hook(average_bucket);
        change();
        ddp.forward(input).backward();
      }
      EXPECT_EQ(weight.grad().strides(),
                has_gaps ? weight.detach().contiguous().strides() : weight.strides());
    }
  }
}

// As with Horovod: only rank 0 loads the weights, which are channels last; then all ranks take
// them.
TEST(ChangedLayout, OneRankLoadsAFileOfOtherStrides) {
  std::stringstream file;
  Conv2d saved = convolution();
  to_channels_last(saved);
  torch::save(saved, file);
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    Conv2d other = convolution();
    {
      const torch::NoGradGuard no_grad;
      other->weight.add_(kolo::rank() + 1.0);
    }
    Trainer trainer(kind, other);
    std::istringstream input(file.str());
    if (kolo::rank() == 0) torch::load(trainer.module, input);
    kolo::broadcast_parameters(*trainer.module, 0);
    EXPECT_EQ(trainer.module->weight.is_contiguous(kChannelsLast), kolo::rank() == 0);
    Alone reference;
    for (int step = 0; step < 3; ++step) {
      trainer.step(step);
      reference.step(step);
      expect_same(trainer, reference, "after step " + std::to_string(step));
    }
  }
}

/// A file in a folder that all ranks share; removed at its end.
struct SharedFile {
  explicit SharedFile(const std::string& name)
      : path(std::filesystem::temp_directory_path() /
             (name + kolo::broadcast_object(std::to_string(getpid()), 0, {.name = name}))) {}
  ~SharedFile() {
    kolo::barrier();
    if (kolo::rank() == 0) std::filesystem::remove(path);
  }
  std::filesystem::path path;
};

TEST(ChangedLayout, CheckpointsOfOtherStrides) {
  const Kind shards{.name = "shards", .shards = true};
  for (const bool saves_last : {false, true}) {
    for (const bool loads_last : {false, true}) {
      for (const bool changes_then : {false, true}) {
        SCOPED_TRACE(testing::Message() << saves_last << loads_last << changes_then);
        const SharedFile file("kolo_changed_layout");
        Alone alone;
        {
          Trainer trainer(shards);
          for (int step = 0; step < 3; ++step) {
            trainer.step(step);
            alone.step(step);
          }
          if (saves_last) to_channels_last(trainer.module);
          kolo::save_checkpoint(
              file.path, {.module = trainer.module.get(), .optimizer = trainer.sharded.get()}, 1);
        }
        Conv2d into = convolution();
        if (loads_last) to_channels_last(into);
        Trainer trainer(shards, into);
        if (changes_then) to_channels_last(trainer.module);
        kolo::load_checkpoint(file.path,
                              {.module = trainer.module.get(), .optimizer = trainer.sharded.get()});
        to_channels_last(trainer.module);
        for (int step = 3; step < 6; ++step) {
          trainer.step(step);
          alone.step(step);
          expect_same(trainer, alone, "after step " + std::to_string(step));
        }
      }
    }
  }
}

/// Two parameters; one of them grows later.
struct PairImpl : torch::nn::Module {
  torch::Tensor a = register_parameter("a", torch::ones({2}, torch::kFloat64));
  torch::Tensor b = register_parameter("b", torch::full({3}, 5.0, torch::kFloat64));
  torch::Tensor forward() { return (a * a).sum() + (b * b).sum(); }
};

void grow(const torch::Tensor& tensor, std::int64_t size) {
  set_data(tensor, torch::ones({size}, tensor.options().requires_grad(false)));
  tensor.mutable_grad() = torch::Tensor();
}

/// Checks that one rank refused it, or all did.
void expect_refused(const std::string& message, bool by_all, const std::string& what) {
  EXPECT_THAT(message, HasSubstr(what));
  if (!by_all && !is_last()) {
    EXPECT_THAT(message, HasSubstr(last_rank() + ": "));
  }
}

constexpr const char* kGrown = "parameter 'a' is Double [4] on cpu, but was Double [2] on cpu when";

TEST(ChangedLayout, AGrownParameterIsNamedByAllOfDdp) {
  for (const bool by_all : {true, false}) {
    for (const bool trains : {true, false}) {
      for (const Kind& kind : kinds()) {
        if (!kind.ddp || kind.shards) continue;
        SCOPED_TRACE(testing::Message() << kind.name << ' ' << by_all << trains);
        const auto model = std::make_shared<PairImpl>();
        DistributedDataParallel ddp(model, kind.options);
        if (kind.hook) ddp.register_comm_hook(average_bucket);
        ddp.train(trains);
        const auto step = [&](bool inner) {
          (inner ? model->forward() : ddp.forward()).backward();
        };
        step(false);
        if (by_all || is_last()) grow(model->a, 4);
        expect_refused(message_of([&] { step(false); }), by_all, kGrown);
        ddp.zero_grad();
        expect_refused(message_of([&] { step(true); }), by_all, kGrown);
        ddp.zero_grad();
        if (by_all || is_last()) grow(model->a, 2);
        step(false);
        EXPECT_TRUE(torch::equal(model->b.grad(), 2 * model->b));
      }
    }
  }
}

TEST(ChangedLayout, AGrownParameterIsNamedByAllShards) {
  for (const bool by_all : {true, false}) {
    for (const bool reduced : {true, false}) {
      SCOPED_TRACE(testing::Message() << by_all << reduced);
      const auto model = std::make_shared<PairImpl>();
      ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters(),
                                 {.gradients_are_reduced = reduced});
      const auto step = [&] {
        optimizer.zero_grad();
        model->forward().backward();
        optimizer.step();
      };
      step();
      const auto b = model->b.detach().clone();
      if (by_all || is_last()) grow(model->a, 4);
      EXPECT_THAT(message_of(step), AllOf(HasSubstr(kGrown), HasSubstr("ShardedOptimizer: rank ")));
      EXPECT_TRUE(torch::equal(model->b, b)) << "nothing is stepped on";
      if (by_all || is_last()) grow(model->a, 2);
      optimizer.zero_grad();
      model->forward().backward();
      optimizer.clip_grad_norm(1e9);
      if (by_all || is_last()) grow(model->a, 4);
      EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr(kGrown));
      EXPECT_THAT(message_of([&] { optimizer.consolidate(0); }), HasSubstr(kGrown));
      if (by_all || is_last()) grow(model->a, 2);
      step();
      EXPECT_TRUE(torch::allclose(model->b, 0.8 * b));
    }
  }
}

// The ranks agree on each gradient anew.
TEST(ChangedLayout, DistributedOptimizerTakesAGrownParameterOfAllRanks) {
  const auto model = std::make_shared<PairImpl>();
  DistributedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  const auto step = [&] {
    optimizer.zero_grad();
    (model->forward() * (kolo::rank() + 1.0)).backward();
    optimizer.step();
  };
  step();
  grow(model->a, 4);
  step();
  const double gradient = kolo::test::mean_of_ranks() * 2;
  EXPECT_TRUE(torch::allclose(model->a, torch::full({4}, 1 - 0.1 * gradient, torch::kFloat64)));
  if (kolo::size() == 1) return;
  if (is_last()) grow(model->a, 5);
  EXPECT_THAT(message_of(step), AllOf(HasSubstr("/a'"), HasSubstr("[4]"), HasSubstr("[5]")));
}

TEST(ChangedLayout, AConversionOfOneRankIsNamedByAllOfDdp) {
  torch::nn::Linear layer(2, 2);
  DistributedDataParallel ddp(layer);
  if (is_last()) layer->to(torch::kFloat64);
  const auto type = layer->weight.scalar_type();
  expect_refused(message_of([&] {
                   ddp.forward(torch::ones({1, 2}, type)).sum().backward();
                 }),
                 kolo::size() == 1,
                 "parameter 'weight' is Double [2, 2] on cpu, but was Float [2, 2] on cpu when");
}

TEST(ChangedLayout, AParameterThatOneRankThawsIsNamedByAllOfDdp) {
  torch::nn::Linear layer(2, 1);
  layer->bias.set_requires_grad(false);
  DistributedDataParallel ddp(layer);
  const auto step = [&] { ddp.forward(torch::ones({1, 2})).sum().backward(); };
  step();
  if (is_last()) layer->bias.set_requires_grad(true);
  expect_refused(message_of(step), kolo::size() == 1,
                 "parameter 'bias' requires a gradient, but did not when this was made");
  layer->bias.set_requires_grad(false);
  EXPECT_EQ(message_of(step), "(no error)");
}

TEST(ChangedLayout, BuffersOfOtherSizesAreNamedByAll) {
  for (const bool other_type : {false, true}) {
    torch::nn::BatchNorm1d norm(4);
    DistributedDataParallel ddp(norm);
    const auto step = [&] { ddp.forward(torch::randn({3, 4})).sum().backward(); };
    step();
    const auto before = norm->running_mean.detach().clone();
    if (is_last()) {
      set_data(norm->running_mean,
               other_type ? torch::zeros({4}, torch::kFloat64) : torch::zeros({6}));
    }
    EXPECT_THAT(message_of(step),
                AllOf(HasSubstr(last_rank() + ": 'running_mean' is "),
                      HasSubstr(other_type ? "Double [4]" : "Float [6]"),
                      HasSubstr("but was Float [4] on cpu when"), HasSubstr("broadcast_buffers")));
    set_data(norm->running_mean, before);
    EXPECT_EQ(message_of(step), "(no error)");
  }
}

TEST(ChangedLayout, ShardsFollowAModuleThatIsConvertedBefore) {
  torch::nn::Linear layer(3, 2);
  ShardedOptimizer optimizer(SGD(layer->parameters(), 0.1), layer->named_parameters());
  layer->to(torch::kFloat64);
  torch::nn::Linear alone = std::dynamic_pointer_cast<torch::nn::LinearImpl>(layer->clone());
  SGD plain(alone->parameters(), 0.1);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    plain.zero_grad();
    layer->forward(torch::ones({1, 3}, torch::kFloat64)).pow(2).sum().backward();
    alone->forward(torch::ones({1, 3}, torch::kFloat64)).pow(2).sum().backward();
    optimizer.step();
    plain.step();
  }
  EXPECT_TRUE(torch::allclose(layer->weight, alone->weight));
}

TEST(ChangedLayout, ParametersInOneMemoryAreNamedByAllShards) {
  struct TwoImpl : torch::nn::Module {
    torch::Tensor a = register_parameter("a", torch::ones({4}));
    torch::Tensor b = register_parameter("b", torch::ones({4}));
    torch::Tensor forward() { return (a * b).sum(); }
  };
  constexpr const char* kOne = "parameters 'a' and 'b' lie in one memory";
  const auto model = std::make_shared<TwoImpl>();
  ShardedOptimizer optimizer(SGD(model->parameters(), 0.1), model->named_parameters());
  const auto step = [&] {
    optimizer.zero_grad();
    model->forward().backward();
    optimizer.step();
  };
  step();
  const auto data = model->b.detach();
  if (is_last()) set_data(model->b, model->a.detach());
  EXPECT_THAT(message_of(step), HasSubstr(kOne));
  EXPECT_THAT(message_of([&] {
                ShardedOptimizer(SGD(model->parameters(), 0.1), model->named_parameters());
              }),
              HasSubstr(kOne));
  if (is_last()) set_data(model->b, data);
  EXPECT_EQ(message_of(step), "(no error)");
}

}  // namespace
