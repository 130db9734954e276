// Memory formats, scalars and tensors without elements through every collective on tensors, under
// mpirun: every test runs on all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace {

using kolo::test::message_of;
using testing::HasSubstr;
constexpr auto kChannelsLast = torch::MemoryFormat::ChannelsLast;

/// Images of this rank, with rows that can be dealt out to all ranks.
torch::Tensor images(int rank) {
  const std::int64_t rows = 2 * kolo::size();
  return torch::arange(rows * 3 * 4 * 5)
      .reshape({rows, 3, 4, 5})
      .add(1000 * rank)
      .to(torch::kFloat64);
}

using Call = std::function<torch::Tensor(const torch::Tensor&)>;
struct Named {
  const char* name;
  Call call;
};

const std::vector<Named>& whole_calls() {
  static const std::vector<Named> calls{
      {"allreduce", [](const auto& t) { return kolo::allreduce(t); }},
      {"allreduce_", [](const auto& t) { return kolo::allreduce_(t.clone()); }},
      {"grouped_allreduce", [](const auto& t) { return kolo::grouped_allreduce({t})[0]; }},
      {"broadcast", [](const auto& t) { return kolo::broadcast(t, kolo::size() - 1); }},
      {"broadcast_", [](const auto& t) { return kolo::broadcast_(t.clone(), 0); }}};
  return calls;
}

const std::vector<Named>& row_calls() {
  static const std::vector<Named> calls{
      {"allgather", [](const auto& t) { return kolo::allgather(t); }},
      {"grouped_allgather", [](const auto& t) { return kolo::grouped_allgather({t})[0]; }},
      {"alltoall", [](const auto& t) { return kolo::alltoall(t, {}).output; }},
      {"reducescatter", [](const auto& t) { return kolo::reducescatter(t); }},
      {"gather", [](const auto& t) { return kolo::gather(t, 0); }},
      {"scatter", [](const auto& t) { return kolo::scatter(t, 0); }}};
  return calls;
}

TEST(Layout, ChannelsLastStaysChannelsLast) {
  const auto plain = images(kolo::rank());
  const auto last = plain.contiguous(kChannelsLast);
  for (const auto* calls : {&whole_calls(), &row_calls()}) {
    for (const auto& [name, call] : *calls) {
      SCOPED_TRACE(name);
      const auto result = call(last);
      EXPECT_TRUE(torch::equal(result, call(plain)));
      EXPECT_TRUE(result.is_contiguous(kChannelsLast));
    }
  }
}

// Elements are combined by their index, so ranks need not have the same strides.
TEST(Layout, RanksMayHaveOtherStrides) {
  const auto plain = images(kolo::rank());
  const auto mine = kolo::rank() % 2 == 0 ? plain : plain.contiguous(kChannelsLast);
  for (const auto* calls : {&whole_calls(), &row_calls()}) {
    for (const auto& [name, call] : *calls) {
      SCOPED_TRACE(name);
      EXPECT_TRUE(torch::equal(call(mine), call(plain)));
    }
  }
}

TEST(Layout, InPlaceIsTheSameMemory) {
  for (const auto& tensor : {images(kolo::rank()), images(kolo::rank()).contiguous(kChannelsLast),
                             images(kolo::rank()).permute({3, 0, 2, 1})}) {
    auto changed = tensor.clone();
    const void* const memory = changed.data_ptr();
    const auto strides = changed.strides().vec();
    EXPECT_EQ(kolo::allreduce_(changed).data_ptr(), memory);
    EXPECT_EQ(kolo::broadcast_(changed, 0).data_ptr(), memory);
    EXPECT_EQ(changed.strides().vec(), strides);
    EXPECT_TRUE(torch::equal(changed, kolo::allreduce(tensor)));
  }
}

TEST(Layout, TheOptimizerKeepsChannelsLast) {
  torch::manual_seed(3);
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(3, 4, 3));
  layer->weight.set_data(layer->weight.contiguous(kChannelsLast));
  kolo::broadcast_parameters(*layer, 0);
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(layer->parameters(), 0.1),
                                       layer->named_parameters());
  const auto before = layer->weight.detach().clone();
  const auto input = images(kolo::rank()).to(torch::kFloat32).contiguous(kChannelsLast) / 1000;
  layer->forward(input).pow(2).mean().backward();
  optimizer.step();
  EXPECT_TRUE(layer->weight.is_contiguous(kChannelsLast));
  EXPECT_FALSE(torch::equal(layer->weight, before));
  EXPECT_TRUE(torch::equal(kolo::broadcast(layer->weight.detach(), 0), layer->weight));
}

/// Tensors with LibTorch's lazy conjugate or negative bit, also on rank 0 alone.
TEST(Layout, LazyConjugatesAndNegativesAreWhatTheySay) {
  const auto plain = torch::complex(torch::arange(4.0) + kolo::rank(), torch::arange(4.0) - 7);
  const auto values = plain.conj().resolve_conj();
  const auto sum = kolo::allreduce(values);
  for (const bool on_all : {true, false}) {
    const bool is_lazy = on_all || kolo::rank() == 0;
    const auto lazy = is_lazy ? plain.conj() : values;
    EXPECT_TRUE(torch::equal(kolo::allreduce(lazy), sum));
    EXPECT_TRUE(torch::equal(kolo::allgather(lazy), kolo::allgather(values)));
    auto in_place = is_lazy ? plain.clone().conj() : values.clone();
    kolo::allreduce_(in_place);
    EXPECT_TRUE(torch::equal(in_place.resolve_conj(), sum));
    auto copy = is_lazy ? plain.clone().conj() : values.clone();
    kolo::broadcast_(copy, 0);
    EXPECT_TRUE(torch::equal(copy.resolve_conj(), kolo::broadcast(values, 0)));
  }
  const std::vector<std::int64_t> splits(static_cast<std::size_t>(kolo::size()), 1);
  const auto rows = values.repeat({kolo::size()}).reshape({kolo::size(), 4});
  const auto lazy_rows = plain.repeat({kolo::size()}).reshape({kolo::size(), 4}).conj();
  EXPECT_TRUE(torch::equal(kolo::reducescatter(lazy_rows), kolo::reducescatter(rows)));
  EXPECT_TRUE(
      torch::equal(kolo::alltoall(lazy_rows, splits).output, kolo::alltoall(rows, splits).output));
  const auto negative = torch::_neg_view(torch::arange(4.0));
  EXPECT_TRUE(torch::equal(kolo::allreduce(negative), torch::arange(4.0) * -kolo::size()));
  if (kolo::size() > 1 && kolo::rank() == 0) kolo::send(plain.conj(), 1);
  if (kolo::rank() == 1) {
    auto received = torch::zeros_like(plain).conj();
    kolo::recv_(received, 0);
    EXPECT_TRUE(torch::equal(received.resolve_conj(), values - 1));
  }
}

TEST(Layout, GradientsThatAreLazyConjugatesAreAveraged) {
  const auto weight = torch::complex(torch::ones({2}), torch::full({2}, 2.0)).requires_grad_();
  kolo::DistributedOptimizer optimizer(torch::optim::SGD(std::vector{weight}, 0.1),
                                       kolo::NamedTensors{{"weight", weight}});
  const auto gradient = torch::complex(torch::ones({2}), torch::full({2}, 2.0));
  // The sum of two uses is no lazy conjugate.
  const auto used = weight.conj();
  (kolo::rank() == 0 ? used : used * 0.5 + used * 0.5).backward(gradient);
  optimizer.synchronize();
  EXPECT_TRUE(torch::equal(weight.grad().resolve_conj(), gradient.conj().resolve_conj()));
}

TEST(Scalars, PassWhereWholeTensorsDo) {
  const auto mine = torch::tensor(kolo::rank() + 1.0, torch::kFloat64);
  for (const auto& [name, call] : whole_calls()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(call(mine).dim(), 0);
  }
  EXPECT_EQ(kolo::allreduce(mine).item<double>(), kolo::size() * (kolo::size() + 1) / 2.0);
  EXPECT_EQ(kolo::allreduce(mine, {.op = kolo::ReduceOp::kMax}).item<double>(), kolo::size());
  EXPECT_EQ(kolo::allreduce(mine, {.op = kolo::ReduceOp::kMin}).item<double>(), 1);
  EXPECT_EQ(kolo::broadcast(mine, kolo::size() - 1).item<double>(), kolo::size());
  auto sent = kolo::send_async(mine, (kolo::rank() + 1) % kolo::size());
  const int before = (kolo::rank() + kolo::size() - 1) % kolo::size();
  EXPECT_EQ(kolo::recv_(torch::zeros({}, torch::kFloat64), before).item<double>(), before + 1);
  sent.wait();
}

TEST(Scalars, AreRefusedWhereRowsAreNeeded) {
  for (const auto& [name, call] : row_calls()) {
    SCOPED_TRACE(name);
    EXPECT_THAT(message_of([&, &of = call] { of(torch::tensor(1.0)); }),
                HasSubstr("takes rows, but the tensor is a scalar; give it a first dimension"));
  }
}

TEST(Empty, TensorsPassEveryCollective) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 3}, {2 * kolo::size(), 0}, {0}}) {
    const auto mine = torch::empty(shape);
    for (const auto& [name, call] : whole_calls()) {
      SCOPED_TRACE(name);
      EXPECT_EQ(call(mine).sizes().vec(), shape);
    }
    for (const auto& [name, call] : row_calls()) {
      SCOPED_TRACE(name);
      const auto result = call(mine);
      EXPECT_EQ(result.numel(), 0);
      EXPECT_EQ(result.dim(), mine.dim());
    }
  }
}

}  // namespace
