// Groups, gradients and misuse over process sets, and further requirements of Horovod's own tests
// on tensors; docs/horovod_tests.md names them. Under mpirun: every test runs on all ranks at once.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using kolo::test::message_of;
using testing::HasSubstr;

/// The process set of the even or of the odd ranks, whichever has this rank. Both sets exist as
/// long as this object; a single rank has the world.
class Half {
 public:
  Half() {
    if (kolo::size() == 1) return;
    for (int parity = 0; parity < 2; ++parity) {
      std::vector<int> ranks;
      for (int r = parity; r < kolo::size(); r += 2) ranks.push_back(r);
      sets_.push_back(kolo::add_process_set(ranks));
    }
    mine_ = sets_[static_cast<std::size_t>(kolo::rank() % 2)];
  }
  ~Half() {
    for (const auto& set : sets_) kolo::remove_process_set(set);
  }
  Half(const Half&) = delete;
  Half& operator=(const Half&) = delete;

  const kolo::ProcessSet& set() const { return mine_; }
  int size() const { return mine_.size(); }
  int rank() const { return mine_.rank(); }
  int root() const { return mine_.ranks().back(); }
  /// 1 + 2 + … + size.
  double sum() const { return size() * (size() + 1) / 2.0; }

 private:
  std::vector<kolo::ProcessSet> sets_;
  kolo::ProcessSet mine_ = {};
};

TEST(ProcessSets, TakeGroups) {
  const Half half;
  const auto ones = torch::ones({half.size(), 2});
  const auto sums = kolo::grouped_allreduce({ones, 3 * ones}, {.process_set = half.set()});
  EXPECT_TRUE(torch::equal(sums[0], half.size() * ones));
  EXPECT_TRUE(torch::equal(sums[1], 3 * half.size() * ones));
  const auto mine = torch::full({1, 2}, kolo::rank());
  const auto gathered = kolo::grouped_allgather({mine, mine + 1}, {.process_set = half.set()});
  const auto dealt = kolo::grouped_reducescatter({ones, 2 * ones}, {.process_set = half.set()});
  const std::vector<int> ranks = half.set().ranks();
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto member = static_cast<std::size_t>(i);
    EXPECT_TRUE(torch::equal(dealt[member],
                             torch::full({1, 2}, static_cast<double>((i + 1) * half.size()))));
    for (std::int64_t r = 0; r < half.size(); ++r)
      EXPECT_EQ(gathered[member][r][0].item<int>(), ranks[static_cast<std::size_t>(r)] + i);
  }
  kolo::barrier({.process_set = half.set()});
  const auto exchanged = kolo::alltoall(half.rank() * ones, {}, {.process_set = half.set()});
  for (std::int64_t r = 0; r < half.size(); ++r)
    EXPECT_EQ(exchanged.output[r][0].item<double>(), static_cast<double>(r));
  EXPECT_EQ(kolo::reducescatter(ones, {.process_set = half.set()})[0][1].item<double>(),
            half.size());
  const auto sparse = kolo::sparse_allreduce(ones.to_sparse(), {.process_set = half.set()});
  EXPECT_TRUE(torch::equal(sparse.to_dense(), half.size() * ones));
  kolo::barrier();
  EXPECT_EQ(kolo::allreduce(torch::ones({1})).item<double>(), kolo::size());
}

TEST(ProcessSets, TakeObjects) {
  const Half half;
  const std::vector<int> ranks = half.set().ranks();
  EXPECT_EQ(kolo::broadcast_object(kolo::rank(), half.root(), {.process_set = half.set()}),
            half.root());
  EXPECT_EQ(kolo::allgather_object(kolo::rank(), {.process_set = half.set()}), ranks);
  const kolo::Parcel parcel{.failure = kolo::rank() == half.root() ? "no value" : ""};
  EXPECT_THAT(message_of([&] {
                kolo::allgather_bytes(parcel, {.name = "parts", .process_set = half.set()});
              }),
              HasSubstr("rank " + std::to_string(half.root()) + ": no value"));
}

TEST(Sparse, TwoInFlightEndInAnyOrder) {
  const auto rows = torch::eye(4).to_sparse();
  auto first = kolo::sparse_allreduce_async(rows, {.name = "first"});
  auto second =
      kolo::sparse_allreduce_async(2 * rows, {.op = kolo::ReduceOp::kAverage, .name = "second"});
  EXPECT_TRUE(torch::equal(second.wait().to_dense(), 2 * torch::eye(4)));
  EXPECT_TRUE(second.done());
  EXPECT_TRUE(torch::equal(first.wait().to_dense(), kolo::size() * torch::eye(4)));
  EXPECT_TRUE(torch::equal(first.wait().to_dense(), kolo::size() * torch::eye(4)));
}

// The loss is rank + 1 times the output, so each gradient is a sum of such factors.
TEST(Autograd, OverAProcessSet) {
  const Half half;
  const auto gradient = [&](std::int64_t rows, const auto& call) {
    auto input = torch::rand({rows, 2}, torch::kFloat64).requires_grad_();
    (call(input).sum() * (half.rank() + 1)).backward();
    return input.grad();
  };
  const auto& set = half.set();
  const auto same = torch::full({1, 2}, half.sum(), torch::kFloat64);
  EXPECT_TRUE(torch::equal(
      gradient(1,
               [&](const auto& x) { return kolo::autograd::allreduce(x, {.process_set = set}); }),
      same));
  EXPECT_TRUE(torch::equal(
      gradient(1,
               [&](const auto& x) { return kolo::autograd::allgather(x, {.process_set = set}); }),
      same));
  EXPECT_TRUE(torch::equal(gradient(1,
                                    [&](const auto& x) {
                                      return kolo::autograd::broadcast(x, half.root(),
                                                                       {.process_set = set});
                                    }),
                           kolo::rank() == half.root() ? same : 0 * same));
  // Row k is rank k's, whose factor is k + 1.
  const auto by_row =
      torch::arange(1, half.size() + 1, torch::kFloat64).unsqueeze(1).expand({-1, 2});
  EXPECT_TRUE(torch::equal(gradient(half.size(),
                                    [&](const auto& x) {
                                      return kolo::autograd::alltoall(x, {}, {.process_set = set});
                                    }),
                           by_row));
  EXPECT_TRUE(torch::equal(gradient(half.size(),
                                    [&](const auto& x) {
                                      return kolo::autograd::reducescatter(x, {.process_set = set});
                                    }),
                           by_row));
}

TEST(Groups, ScaleEveryMember) {
  const int size = kolo::size();
  const std::vector<torch::Tensor> members{torch::ones({size}), torch::full({size, 2}, 2.0)};
  const auto check = [&](const kolo::TensorReducescatterOptions& options) {
    const auto results = kolo::grouped_reducescatter(members, options);
    EXPECT_TRUE(torch::allclose(results[0], torch::full({1}, 3.0 * size)));
    EXPECT_TRUE(torch::allclose(results[1], torch::full({1, 2}, 6.0 * size)));
  };
  check({.prescale = 3});
  check({.postscale = 3});
  EXPECT_THAT(message_of([&] {
                kolo::grouped_reducescatter({members[0], torch::tensor(1.0)}, {.name = "g"});
              }),
              HasSubstr("takes rows, but the tensor is a scalar"));
}

// Rank 1 differs from all others, and every rank's error says how.
TEST(Misuse, TypesOfRowsMustAgree) {
  if (kolo::size() == 1) return;
  const bool odd_one = kolo::rank() == 1;
  const auto typed = torch::ones({2 * kolo::size()}, odd_one ? torch::kFloat64 : torch::kFloat32);
  const auto shaped = torch::ones({2 * kolo::size(), odd_one ? 4 : 3});
  const char* const types = "submitted type float32, but rank 1 submitted type float64";
  EXPECT_THAT(message_of([&] { kolo::allgather(typed, {.name = "t"}); }), HasSubstr(types));
  EXPECT_THAT(message_of([&] { kolo::broadcast(typed, 0, {.name = "t"}); }), HasSubstr(types));
  EXPECT_THAT(message_of([&] { kolo::alltoall(typed, {}, {.name = "t"}); }), HasSubstr(types));
  EXPECT_THAT(message_of([&] { kolo::broadcast(shaped, 0, {.name = "t"}); }),
              HasSubstr("but rank 1 submitted shape ["));
  EXPECT_THAT(message_of([&] { kolo::reducescatter(shaped, {.name = "t"}); }),
              HasSubstr("but rank 1 submitted shape ["));
  EXPECT_THAT(message_of([&] { kolo::alltoall(shaped, {}, {.name = "t"}); }),
              HasSubstr("row shape [3], but rank 1 submitted row shape [4]"));
  EXPECT_EQ(kolo::allreduce(torch::ones({1}), {.name = "t"}).item<double>(), kolo::size());
}

}  // namespace
