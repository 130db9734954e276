// Parts of a ShardedOptimizer's state that ranks of one world have saved, and others load. On all
// ranks at once; tests/chaos has worlds that end.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace kolo::test::sharded_world_test {
namespace {

using testing::HasSubstr;

/// Odd sizes, channels-last weights, and a layer that some steps do not use.
struct NetworkImpl : torch::nn::Module {
  explicit NetworkImpl(std::uint64_t seed) {
    torch::manual_seed(seed);
    conv = register_module("conv", torch::nn::Conv2d(3, 5, 3));
    first = register_module("first", torch::nn::Linear(20, 7));
    extra = register_module("extra", torch::nn::Linear(7, 3));
    conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear first{nullptr}, extra{nullptr};
};
TORCH_MODULE(Network);

/// One step with the same gradients on all ranks, so that their number does not matter.
template <class O>
void train(Network& network, O& optimizer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(1000 + step));
    const auto hidden = network->first(network->conv(torch::randn({4, 3, 4, 4})).flatten(1));
    const auto output = step % 3 == 0 ? hidden : network->extra(torch::tanh(hidden));
    optimizer.zero_grad();
    output.square().mean().backward();
    optimizer.step();
  }
}

void expect_same(const torch::nn::Module& one, const torch::nn::Module& other,
                 const std::string& what) {
  for (const auto& item : one.named_parameters()) {
    const auto theirs = other.named_parameters()[item.key()];
    EXPECT_TRUE(torch::allclose(item.value(), theirs, 1e-5, 1e-6))
        << what << ": " << item.key() << " differs by "
        << (item.value() - theirs).abs().max().item<double>();
  }
}

std::string part_of(ShardedState& optimizer) {
  std::string part(static_cast<std::size_t>(optimizer.part_bytes()), '\0');
  optimizer.save_part(reinterpret_cast<std::byte*>(part.data()));
  return part;
}

std::int64_t load(ShardedState& optimizer, const std::string& part, int rank, int size) {
  return optimizer.load_part(reinterpret_cast<const std::byte*>(part.data()),
                             static_cast<std::int64_t>(part.size()), rank, size);
}

/// The first `former` ranks train. All ranks go on, with other weights and a new optimizer.
template <class O, class Options>
void go_on(int former, const Options& options, const ShardedOptimizerOptions& sharding) {
  std::vector<int> ranks(static_cast<std::size_t>(former));
  std::iota(ranks.begin(), ranks.end(), 0);
  const ProcessSet set = former == size() ? ProcessSet() : add_process_set(ranks);
  std::string mine;
  if (rank() < former) {
    Network network(5);
    ShardedOptimizerOptions own = sharding;
    own.process_set = set;
    ShardedOptimizer optimizer(O(network->parameters(), options), network->named_parameters(), own);
    train(network, optimizer, 0, 5);
    mine = part_of(optimizer);
  }
  if (former != size()) remove_process_set(set);
  Network network(6);
  ShardedOptimizer optimizer(O(network->parameters(), options), network->named_parameters(),
                             sharding);
  network->conv->weight.set_data(network->conv->weight.contiguous());
  train(network, optimizer, 0, 2);
  optimizer.leave_world();
  EXPECT_THAT(message_of([&] { optimizer.step(); }), HasSubstr("its world has ended"));
  optimizer.enter_world();
  for (int r = 0; r < former; ++r) {
    const std::string part = broadcast_object(mine, r);
    EXPECT_EQ(load(optimizer, part, r, former), static_cast<std::int64_t>(part.size()));
  }
  Network plain(5);
  O reference(plain->parameters(), options);
  train(plain, reference, 0, 5);
  expect_same(*network, *plain, "when loaded");
  train(network, optimizer, 5, 10);
  train(plain, reference, 5, 10);
  expect_same(*network, *plain, "five steps later");
}

template <class O, class Options>
void go_on_from_all_numbers(const Options& options) {
  for (int former = 1; former <= size(); ++former) {
    go_on<O>(former, options, {});
    go_on<O>(former, options, {.bucket_cap_mb = 1e-4});
  }
}

TEST(ShardedWorld, AdamGoesOn) {
  go_on_from_all_numbers<torch::optim::Adam>(torch::optim::AdamOptions(1e-2));
}
TEST(ShardedWorld, AdamWGoesOn) {
  go_on_from_all_numbers<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2).amsgrad(true));
}
TEST(ShardedWorld, SgdGoesOn) {
  go_on_from_all_numbers<torch::optim::SGD>(torch::optim::SGDOptions(1e-2).momentum(0.9));
}
TEST(ShardedWorld, RmspropGoesOn) {
  go_on_from_all_numbers<torch::optim::RMSprop>(
      torch::optim::RMSpropOptions(1e-3).momentum(0.5).centered(true));
}
TEST(ShardedWorld, AdagradGoesOn) {
  go_on_from_all_numbers<torch::optim::Adagrad>(
      torch::optim::AdagradOptions(1e-2).initial_accumulator_value(0.1));
}

TEST(ShardedWorld, OptionsStayAndThePartOfOtherParametersIsRefused) {
  Network network(5);
  ShardedOptimizer optimizer(torch::optim::Adam(network->parameters(), 1e-2),
                             network->named_parameters());
  optimizer.param_groups()[0].options().set_lr(0.25);
  optimizer.leave_world();
  optimizer.enter_world();
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  EXPECT_EQ(optimizer.state_bytes(), 0U);
  train(network, optimizer, 0, 2);
  const std::string part = part_of(optimizer);
  EXPECT_THAT(
      message_of([&] { load(optimizer, part.substr(0, part.size() - 16), rank(), size()); }),
      HasSubstr("which does not fit these parameters"));
}

}  // namespace
}  // namespace kolo::test::sharded_world_test
