// ShardedOptimizer against the unsharded optimizer: the same 50 steps with each of LibTorch's
// optimizers, a share of the memory, and checkpoints between different numbers of ranks. On all
// ranks at once.
#include <kolo/torch.h>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>

namespace {

using torch::optim::OptimizerParamGroup;

/// Odd sizes, a convolution with channels-last weights, and a layer that some steps do not use.
struct NetworkImpl : torch::nn::Module {
  NetworkImpl() {
    torch::manual_seed(5);
    conv = register_module("conv", torch::nn::Conv2d(3, 5, 3));
    first = register_module("first", torch::nn::Linear(20, 13));
    second = register_module("second", torch::nn::Linear(13, 3));
    extra = register_module("extra", torch::nn::Linear(13, 3));
    conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  torch::Tensor forward(const torch::Tensor& images, bool with_extra) {
    const auto hidden = torch::tanh(first->forward(conv->forward(images).flatten(1)));
    return with_extra ? second->forward(hidden) + extra->forward(hidden) : second->forward(hidden);
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear first{nullptr}, second{nullptr}, extra{nullptr};
};
TORCH_MODULE(Network);

/// This rank's loss at a step. In every third step no rank uses `extra`, in the others the odd
/// ranks do not.
torch::Tensor loss_of(Network& network, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(1000 * step + kolo::rank()));
  const auto images = torch::randn({4, 3, 4, 4});
  const bool with_extra = step % 3 != 0 && kolo::rank() % 2 == 0;
  return network->forward(images, with_extra).square().mean();
}

template <class O>
void train(Network& network, O& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    optimizer.zero_grad();
    loss_of(network, step).backward();
    optimizer.step();
  }
}

/// Bit by bit if the order of summation cannot differ.
void expect_same(const torch::nn::Module& one, const torch::nn::Module& other,
                 const std::string& what) {
  for (const auto& item : one.named_parameters()) {
    const auto theirs = other.named_parameters()[item.key()];
    const auto bits = torch::equal(item.value(), theirs);
    EXPECT_TRUE(kolo::size() <= 2 ? bits : torch::allclose(item.value(), theirs, 1e-5, 1e-6))
        << what << ": " << item.key() << " differs by "
        << (item.value() - theirs).abs().max().item<double>();
  }
}

template <class O, class Options>
void fifty_steps(const Options& options, const kolo::ShardedOptimizerOptions& sharding = {}) {
  Network plain, network;
  kolo::DistributedOptimizer reference(O(plain->parameters(), options), plain->named_parameters());
  kolo::ShardedOptimizer optimizer(O(network->parameters(), options), network->named_parameters(),
                                   sharding);
  train(plain, reference, 0, 50);
  train(network, optimizer, 0, 50);
  expect_same(*network, *plain, "after 50 steps");
  const std::size_t whole = kolo::state_bytes(reference);
  const auto ranks = static_cast<std::size_t>(kolo::size());
  // Shares of a block differ by one element of up to three state tensors.
  EXPECT_LE(optimizer.state_bytes(), whole / ranks + 3 * sizeof(float)) << "of " << whole;
  EXPECT_GE(optimizer.state_bytes() + 3 * sizeof(float) * ranks, whole / ranks);
}

TEST(ShardedOptimizer, FiftyStepsOfAdamW) {
  fifty_steps<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).amsgrad(true));
}
TEST(ShardedOptimizer, FiftyStepsOfAdam) {
  fifty_steps<torch::optim::Adam>(torch::optim::AdamOptions(1e-2).weight_decay(0.01));
}
TEST(ShardedOptimizer, FiftyStepsOfSgd) {
  fifty_steps<torch::optim::SGD>(torch::optim::SGDOptions(1e-2).momentum(0.9).nesterov(true));
}
TEST(ShardedOptimizer, FiftyStepsOfRmsprop) {
  fifty_steps<torch::optim::RMSprop>(
      torch::optim::RMSpropOptions(1e-3).momentum(0.5).centered(true));
}
TEST(ShardedOptimizer, FiftyStepsOfAdagrad) {
  fifty_steps<torch::optim::Adagrad>(
      torch::optim::AdagradOptions(1e-2).initial_accumulator_value(0.1));
}
TEST(ShardedOptimizer, SmallBucketsAndGroupsGiveTheSame) {
  Network plain, network, grouped;
  kolo::ShardedOptimizer reference(torch::optim::AdamW(plain->parameters(), 1e-2),
                                   plain->named_parameters());
  kolo::ShardedOptimizer small(torch::optim::AdamW(network->parameters(), 1e-2),
                               network->named_parameters(), {.bucket_cap_mb = 1e-4});
  kolo::ShardedOptimizer groups(torch::optim::AdamW(grouped->parameters(), 1e-2),
                                grouped->named_parameters(),
                                {.groups = std::vector<std::vector<std::string>>{
                                     {"second.bias", "conv.weight"}, {"first.weight"}}});
  train(plain, reference, 0, 10);
  train(network, small, 0, 10);
  train(grouped, groups, 0, 10);
  expect_same(*network, *plain, "small buckets");
  expect_same(*grouped, *plain, "groups");
}

TEST(ShardedOptimizer, PassesAddUpAndGroupsHaveTheirOptions) {
  Network plain, network;
  const auto groups_of = [](Network& of) {
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(of->conv->parameters());
    groups.emplace_back(of->first->parameters(), std::make_unique<torch::optim::SGDOptions>(0.05));
    return groups;
  };
  torch::optim::SGDOptions defaults(1e-2);
  defaults.momentum(0.9);
  kolo::DistributedOptimizer reference(torch::optim::SGD(groups_of(plain), defaults),
                                       plain->named_parameters(), {.backward_passes_per_step = 2});
  kolo::ShardedOptimizer optimizer(torch::optim::SGD(groups_of(network), defaults),
                                   network->named_parameters());
  const auto add = [](auto& to, Network& of) {
    to.add_param_group(OptimizerParamGroup(of->second->parameters()));
  };
  add(reference, plain);
  add(optimizer, network);
  torch::optim::StepLR reference_rate(reference, 3, 0.5), rate(optimizer, 3, 0.5);
  const auto step = [](Network& of, auto& by, auto& schedule, int i) {
    by.zero_grad();
    loss_of(of, 2 * i).backward();
    loss_of(of, 2 * i + 1).backward();
    by.step();
    schedule.step();
  };
  for (int i = 0; i < 10; ++i) {
    step(plain, reference, reference_rate, i);
    step(network, optimizer, rate, i);
  }
  expect_same(*network, *plain, "two passes");
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[1].options().get_lr(), 0.05 / 8);
  EXPECT_DOUBLE_EQ(optimizer.param_groups()[2].options().get_lr(),
                   reference.param_groups()[2].options().get_lr());
}

TEST(ShardedOptimizer, ClipsTheNormOfAllPieces) {
  for (const double type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    Network plain, network;
    kolo::DistributedOptimizer reference(torch::optim::SGD(plain->parameters(), 0.1),
                                         plain->named_parameters());
    kolo::ShardedOptimizer optimizer(torch::optim::SGD(network->parameters(), 0.1),
                                     network->named_parameters());
    loss_of(plain, 1).backward();
    loss_of(network, 1).backward();
    const double norm = reference.clip_grad_norm(1e-3, type);
    EXPECT_NEAR(optimizer.clip_grad_norm(1e-3, type), norm, 1e-4 * norm);
    reference.step();
    optimizer.step();
    for (const auto& item : plain->named_parameters()) {
      EXPECT_TRUE(
          torch::allclose(network->named_parameters()[item.key()], item.value(), 1e-5, 1e-7));
    }
  }
}

/// Rank 0's values; this rank's must be equal.
void expect_alike_on_all_ranks(const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor mine = item.value().detach();
    EXPECT_TRUE(torch::equal(kolo::broadcast(mine, 0), mine)) << item.key();
  }
}

torch::nn::Linear filled_layer() {
  torch::nn::Linear layer(5, 3);
  layer->weight.set_data(torch::ones({3, 5}));
  layer->bias.set_data(torch::ones({3}));
  return layer;
}

TEST(ShardedOptimizer, AGroupThatIsAddedAfterSynchronizingLosesNoStep) {
  for (const bool clips : {true, false}) {
    auto first = filled_layer(), second = filled_layer();
    kolo::ShardedOptimizer optimizer(torch::optim::SGD(first->parameters(), 1.0),
                                     first->named_parameters());
    (first(torch::ones({1, 5})).sum() * (kolo::rank() + 1)).backward();
    if (clips) {
      optimizer.clip_grad_norm(1e9);
    } else {
      optimizer.synchronize();
      optimizer.skip_synchronize();
    }
    optimizer.add_param_group(OptimizerParamGroup(second->parameters()));
    optimizer.step();
    expect_alike_on_all_ranks(*first);
    EXPECT_NEAR(first->bias[0].item<double>(), 1 - (kolo::size() + 1) / 2.0, 1e-5);
  }
}

TEST(ShardedOptimizer, TakesOnGroupsThatWereAddedThroughItsBaseClass) {
  auto first = filled_layer(), second = filled_layer();
  kolo::ShardedOptimizer optimizer(torch::optim::SGD(first->parameters(), 1.0),
                                   first->named_parameters());
  torch::optim::Optimizer& base = optimizer;
  base.add_param_group(OptimizerParamGroup(second->parameters(),
                                           std::make_unique<torch::optim::SGDOptions>(/*lr=*/2.0)));
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const auto sum = first(torch::ones({1, 5})).sum() + second(torch::ones({1, 5})).sum();
    (sum * (kolo::rank() + 1)).backward();
    base.step();
  }
  for (const auto& layer : {first, second}) expect_alike_on_all_ranks(*layer);
  const double mean = (kolo::size() + 1) / 2.0;
  EXPECT_NEAR(first->bias[0].item<double>(), 1 - 2 * mean, 1e-5);
  EXPECT_NEAR(second->bias[0].item<double>(), 1 - 4 * mean, 1e-5) << "with its own learning rate";
}

TEST(ShardedOptimizer, GradientsOfAnAddedGroupAreCleared) {
  auto first = filled_layer(), second = filled_layer();
  kolo::ShardedOptimizer optimizer(torch::optim::SGD(first->parameters(), 1.0),
                                   first->named_parameters());
  static_cast<torch::optim::Optimizer&>(optimizer).add_param_group(
      OptimizerParamGroup(second->parameters()));
  second(torch::ones({1, 5})).sum().backward();
  optimizer.zero_grad();
  EXPECT_FALSE(second->bias.grad().defined());
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One rank's gradient has one infinite element, which lies in one rank's piece.
torch::Tensor overflow_of(Network& network) {
  return loss_of(network, 1) + network->second->bias[0] * (kolo::rank() == 0 ? kInfinity : 0);
}

/// The norm, and the step of `second`'s bias alone, by the unsharded optimizer with these
/// gradients.
double reference_step(Network& network, const std::function<torch::Tensor(Network&)>& loss) {
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(network->parameters(), 0.1),
                                       network->named_parameters());
  if (const auto value = loss(network); value.defined()) value.backward();
  const double norm = optimizer.clip_grad_norm(0.01);
  optimizer.step();
  return norm;
}

void expect_close(const torch::nn::Module& one, const torch::nn::Module& other) {
  for (const auto& item : one.named_parameters()) {
    EXPECT_TRUE(torch::allclose(item.value(), other.named_parameters()[item.key()], 1e-5, 1e-7))
        << item.key();
  }
}

TEST(ShardedOptimizer, AStepThatWasLeftOutIsForgotten) {
  const auto by_all = [](Network& network) { return loss_of(network, 1); };
  const auto by_rank_0 = [](Network& network) {
    return kolo::rank() == 0 ? loss_of(network, 1) : torch::Tensor();
  };
  using Clear = std::function<void(Network&, torch::optim::Optimizer&)>;
  const std::vector<Clear> ways_to_clear = {
      [](Network& network, auto&) { network->zero_grad(); },
      [](Network& network, auto&) {  // backward adds to the same tensors
        for (auto& parameter : network->parameters()) {
          if (parameter.grad().defined()) parameter.mutable_grad().zero_();
        }
      },
      [](Network& network, auto& optimizer) {
        for (auto& parameter : network->parameters()) parameter.mutable_grad().reset();
        optimizer.zero_grad();  // clears only the gradients of the pieces
      }};
  for (const auto& loss : {std::function<torch::Tensor(Network&)>(by_all), {by_rank_0}}) {
    Network plain;
    const double norm = reference_step(plain, loss);
    for (const auto& clear : ways_to_clear) {
      for (const bool clips : {true, false}) {
        Network network;
        kolo::ShardedOptimizer optimizer(torch::optim::SGD(network->parameters(), 0.1),
                                         network->named_parameters());
        overflow_of(network).backward();
        EXPECT_FALSE(std::isfinite(optimizer.clip_grad_norm(0.01)));
        clear(network, optimizer);
        if (const auto value = loss(network); value.defined()) value.backward();
        if (clips) {
          EXPECT_NEAR(optimizer.clip_grad_norm(0.01), norm, 1e-4 * norm);
          optimizer.step();
          expect_close(*network, *plain);
        } else {
          optimizer.step();
          EXPECT_TRUE(network->second->bias.isfinite().all().item<bool>());
        }
      }
    }
  }
}

TEST(ShardedOptimizer, GradientsThatAreClippedStayUntilTheStep) {
  for (const bool reduced : {false, true}) {
    Network plain, network;
    std::optional<kolo::DistributedDataParallel<Network>> ddp;
    if (reduced) ddp.emplace(network, kolo::DdpOptions{.find_unused_parameters = true});
    const double norm = reference_step(plain, [](Network& of) { return loss_of(of, 3); });
    kolo::ShardedOptimizer optimizer(torch::optim::SGD(network->parameters(), 0.1),
                                     network->named_parameters(),
                                     {.gradients_are_reduced = reduced});
    torch::manual_seed(static_cast<std::uint64_t>(3000 + kolo::rank()));
    const auto images = torch::randn({4, 3, 4, 4});
    const auto output = ddp ? ddp->forward(images, false) : network->forward(images, false);
    output.square().mean().backward();
    // A gradient with other strides than its parameter's; the pieces have a copy.
    auto& gradient = network->conv->weight.mutable_grad();
    gradient = gradient.contiguous();
    kolo::GradScaler scaler({.init_scale = 0.5});
    scaler.scale(torch::zeros({}));  // else it refuses the next call
    scaler.unscale_(optimizer);      // doubles them
    EXPECT_NEAR(optimizer.clip_grad_norm(1e9), 2 * norm, 1e-4 * norm);
    EXPECT_NEAR(optimizer.clip_grad_norm(0.01), 2 * norm, 1e-4 * norm);
    network->zero_grad();  // the pieces still have them
    optimizer.step();
    expect_close(*network, *plain);
  }
}

TEST(ShardedOptimizer, ClipsFloat64) {
  torch::nn::Linear layer(3, 2);
  layer->to(torch::kFloat64);
  kolo::ShardedOptimizer optimizer(torch::optim::SGD(layer->parameters(), 0.1),
                                   layer->named_parameters());
  layer(torch::ones({1, 3}, torch::kFloat64)).sum().backward();
  EXPECT_NEAR(optimizer.clip_grad_norm(1e9), std::sqrt(8.0), 1e-12);
}

TEST(ShardedOptimizer, TakesGradientsThatAreReduced) {
  Network plain, network;
  kolo::DdpOptions unused{.find_unused_parameters = true};
  kolo::DistributedDataParallel plain_ddp(plain, unused), ddp(network, unused);
  torch::optim::AdamW reference(plain->parameters(), 1e-2);
  kolo::ShardedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-2),
                                   network->named_parameters(), {.gradients_are_reduced = true});
  for (int step = 0; step < 10; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(100 * step + kolo::rank()));
    const auto images = torch::randn({4, 3, 4, 4});
    const bool with_extra = step % 2 == 0;
    reference.zero_grad();
    optimizer.zero_grad();
    plain_ddp.forward(images, with_extra).square().mean().backward();
    ddp.forward(images, with_extra).square().mean().backward();
    reference.step();
    optimizer.step();
  }
  for (const auto& item : plain->named_parameters()) {
    EXPECT_TRUE(torch::equal(network->named_parameters()[item.key()], item.value())) << item.key();
  }
}

TEST(ShardedOptimizer, ClosuresAndOtherMemoryWork) {
  Network plain, network;
  kolo::DistributedOptimizer reference(torch::optim::AdamW(plain->parameters(), 1e-2),
                                       plain->named_parameters());
  kolo::ShardedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-2),
                                   network->named_parameters());
  for (int step = 0; step < 4; ++step) {
    if (step == 2) {
      for (auto& parameter : network->parameters()) parameter.set_data(parameter.detach().clone());
    }
    const auto close = [step](Network& of, auto& by) {
      return by.step([&of, &by, step] {
        by.zero_grad();
        auto loss = loss_of(of, step);
        loss.backward();
        return loss;
      });
    };
    const auto loss = close(network, optimizer);
    EXPECT_NEAR(loss.template item<double>(), close(plain, reference).template item<double>(),
                1e-5);
  }
  expect_same(*network, *plain, "closures");
}

TEST(ShardedOptimizer, LeavesOutAStepThatOverflowsInOnePiece) {
  Network network;
  kolo::ShardedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-2),
                                   network->named_parameters());
  kolo::GradScaler scaler({.init_scale = 4});
  const auto step = [&](double factor) {
    optimizer.zero_grad();
    scaler.scale(loss_of(network, 1) + network->second->bias[0] * factor).backward();
    const bool taken = scaler.step(optimizer);
    scaler.update();
    return taken;
  };
  EXPECT_TRUE(step(1));
  const torch::Tensor before = network->first->weight.detach().clone();
  // One element on one rank, which lies in one rank's piece.
  EXPECT_FALSE(step(kolo::rank() == 0 ? kInfinity : 0));
  EXPECT_TRUE(torch::equal(network->first->weight, before));
  EXPECT_EQ(scaler.scale_now(), 2);
  EXPECT_TRUE(step(1));
  EXPECT_FALSE(torch::equal(network->first->weight, before));
}

/// A file of n ranks continues with one rank, with the plain optimizer, and with n ranks.
template <class O, class Options>
void checkpoint(const Options& options) {
  const std::string path = kolo::broadcast_object(
      (std::filesystem::temp_directory_path() / ("kolo_sharded_" + std::to_string(getpid())))
          .string(),
      0);
  Network network, resumed, plain;
  kolo::ShardedOptimizer optimizer(O(network->parameters(), options), network->named_parameters());
  train(network, optimizer, 0, 6);
  optimizer.param_groups()[0].options().set_lr(0.004);
  kolo::save_checkpoint(path, {.module = network.ptr().get(), .optimizer = &optimizer}, 6);
  train(network, optimizer, 6, 12);

  kolo::ShardedOptimizer again(O(resumed->parameters(), options), resumed->named_parameters());
  EXPECT_EQ(kolo::load_checkpoint(path, {.module = resumed.ptr().get(), .optimizer = &again}), 6);
  train(resumed, again, 6, 12);
  expect_same(*resumed, *network, "sharded again");

  kolo::DistributedOptimizer whole(O(plain->parameters(), options), plain->named_parameters());
  kolo::load_checkpoint(path, {.module = plain.ptr().get(), .optimizer = &whole});
  EXPECT_DOUBLE_EQ(whole.param_groups()[0].options().get_lr(), 0.004);
  kolo::save_checkpoint(path, {.module = plain.ptr().get(), .optimizer = &whole}, 6);
  train(plain, whole, 6, 12);
  expect_same(*plain, *network, "unsharded");

  // A file of one rank continues on each rank alone and on all together.
  Network back;
  kolo::ShardedOptimizer split(O(back->parameters(), options), back->named_parameters());
  kolo::load_checkpoint(path, {.module = back.ptr().get(), .optimizer = &split});
  train(back, split, 6, 12);
  expect_same(*back, *network, "split from the whole");
  kolo::barrier();
  if (kolo::rank() == 0) std::filesystem::remove(path);
}

TEST(ShardedOptimizer, CheckpointsOfAnyNumberOfRanks) {
  checkpoint<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).amsgrad(true));
  checkpoint<torch::optim::SGD>(torch::optim::SGDOptions(1e-2).momentum(0.9));
  checkpoint<torch::optim::Adagrad>(torch::optim::AdagradOptions(1e-2));
  checkpoint<torch::optim::RMSprop>(torch::optim::RMSpropOptions(1e-3).centered(true));
  checkpoint<torch::optim::Adam>(torch::optim::AdamOptions(1e-2));
}

TEST(ShardedOptimizer, LivesOnAProcessSet) {
  if (kolo::size() < 3) GTEST_SKIP() << "takes three ranks; CTest runs this with 3 and 4";
  const kolo::ProcessSet set = kolo::add_process_set({1, 2});
  if (set.rank() >= 0) {
    Network plain, network;
    kolo::DistributedOptimizer reference(torch::optim::AdamW(plain->parameters(), 1e-2),
                                         plain->named_parameters(), {.process_set = set});
    kolo::ShardedOptimizer optimizer(torch::optim::AdamW(network->parameters(), 1e-2),
                                     network->named_parameters(), {.process_set = set});
    train(plain, reference, 0, 10);
    train(network, optimizer, 0, 10);
    for (const auto& item : plain->named_parameters()) {
      EXPECT_TRUE(torch::equal(network->named_parameters()[item.key()], item.value()));
    }
    EXPECT_THROW(optimizer.consolidate(0), kolo::Exception);
    optimizer.consolidate(2);
    std::ostringstream stream;
    if (kolo::rank() == 2) {
      torch::save(optimizer, stream);
      EXPECT_GT(stream.str().size(), 1000U);
    }
  }
  kolo::remove_process_set(set);
}

}  // namespace
