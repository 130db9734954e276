// Every collective on tensors, under mpirun: rows, groups, sparse tensors, messages, process sets,
// join, and the texts of the errors on all ranks.
#include "tests/support/message_of.h"

#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace {

using kolo::test::message_of;
using testing::HasSubstr;

torch::Tensor rows_of(int rank, std::int64_t rows, torch::ScalarType type = torch::kFloat32) {
  return torch::arange(rows * 3).reshape({rows, 3}).add(100 * rank).to(type);
}

TEST(Rows, AllgatherOfUnevenRowsAndAnyStrides) {
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kInt64}) {
    std::vector<torch::Tensor> expected;
    for (int r = 0; r < kolo::size(); ++r) expected.push_back(rows_of(r, r, type));
    const auto mine = rows_of(kolo::rank(), kolo::rank(), type);
    EXPECT_TRUE(torch::equal(kolo::synchronize(kolo::allgather_async(mine)), torch::cat(expected)));
    const auto strided = mine.t().contiguous().t();
    EXPECT_TRUE(torch::equal(kolo::allgather(strided, {.name = "a"}), torch::cat(expected)));
  }
}

TEST(Rows, AlltoallReturnsOutputAndReceivedSplits) {
  // Rank r sends d + 1 rows to rank d.
  std::vector<std::int64_t> splits(static_cast<std::size_t>(kolo::size()));
  std::iota(splits.begin(), splits.end(), 1);
  const std::int64_t total = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  const auto result = kolo::alltoall(rows_of(kolo::rank(), total), splits);
  const std::int64_t mine = kolo::rank() + 1;
  EXPECT_EQ(result.received_splits,
            std::vector<std::int64_t>(static_cast<std::size_t>(kolo::size()), mine));
  std::vector<torch::Tensor> expected;
  const std::int64_t first = mine * (mine - 1) / 2;
  for (int r = 0; r < kolo::size(); ++r)
    expected.push_back(rows_of(r, total).slice(0, first, first + mine));
  EXPECT_TRUE(torch::equal(result.output, torch::cat(expected)));
}

TEST(Rows, ReducescatterDealsUnevenRows) {
  const std::int64_t rows = 2 * kolo::size() + 1;
  const auto sum = kolo::allreduce(rows_of(kolo::rank(), rows));
  const std::int64_t mine = 2 + (kolo::rank() == 0 ? 1 : 0);
  const std::int64_t first = kolo::rank() == 0 ? 0 : 2 * kolo::rank() + 1;
  const auto expected = sum.slice(0, first, first + mine);
  EXPECT_TRUE(torch::equal(kolo::reducescatter(rows_of(kolo::rank(), rows)), expected));
  EXPECT_TRUE(torch::allclose(
      kolo::reducescatter(rows_of(kolo::rank(), rows), {.op = kolo::ReduceOp::kAverage}),
      expected / kolo::size()));
}

TEST(Rows, ResultsAreOfTheirCallersInferenceMode) {
  // A thread that waits for one operation progresses all of them.
  const auto wait_for_another = [](int i) {
    kolo::allreduce(torch::ones({1}), {.name = "other" + std::to_string(i)});
  };
  for (int i = 0; i < 20; ++i) {
    const std::string name = "rows" + std::to_string(i);
    kolo::TensorWork work = kolo::allgather_async(torch::ones({2}), {.name = name});
    {
      const c10::InferenceMode guard;
      wait_for_another(i);
      work.drain();
    }
    torch::Tensor rows = work.wait();
    ASSERT_FALSE(rows.is_inference());
    rows.mul_(2);  // LibTorch would refuse this in there
    {
      const c10::InferenceMode guard;
      work = kolo::allgather_async(torch::ones({2}), {.name = name});
    }
    wait_for_another(i);
    ASSERT_TRUE(work.wait().is_inference());
  }
}

TEST(Rows, GatherAndScatterAreInverse) {
  for (int root = 0; root < kolo::size(); ++root) {
    const auto mine = rows_of(kolo::rank(), kolo::rank() + 1);
    const auto all = kolo::gather(mine, root);
    EXPECT_EQ(all.size(0), kolo::rank() == root ? kolo::size() * (kolo::size() + 1) / 2 : 0);
    std::vector<std::int64_t> splits;
    if (kolo::rank() == root) {
      for (int r = 0; r < kolo::size(); ++r) splits.push_back(r + 1);
    }
    EXPECT_TRUE(torch::equal(kolo::scatter(all, root, splits), mine));
  }
}

TEST(Groups, AllOrNothing) {
  std::vector<torch::Tensor> tensors{torch::ones({3}), torch::ones({2, 2}).t(),
                                     torch::ones({4}, torch::kFloat64)};
  for (const auto& sum : kolo::grouped_allreduce(tensors, {.name = "g"}))
    EXPECT_TRUE(torch::equal(sum, torch::full_like(sum, kolo::size())));
  kolo::grouped_allreduce_(tensors, {.op = kolo::ReduceOp::kAverage});
  EXPECT_TRUE(torch::equal(tensors[0], torch::ones({3})));
  if (kolo::size() == 1) return;
  tensors[1] = torch::ones({kolo::rank() == 0 ? 2 : 3});
  auto works = kolo::grouped_allreduce_async(tensors, {.name = "g"});
  EXPECT_THAT(message_of([&] { works[0].wait(); }),
              HasSubstr("tensor 'g/0': not done, since 'g/1' of its group 'g' has failed"));
  EXPECT_THAT(message_of([&] { works[1].wait(); }), HasSubstr("rank 0 submitted shape [2], but"));
  EXPECT_THAT(message_of([&] { works[2].wait(); }), HasSubstr("'g/1'"));
  kolo::barrier();
}

TEST(Groups, OfRowsAllOrNothing) {
  const int size = kolo::size();
  std::vector<torch::Tensor> tensors{torch::full({kolo::rank() + 1, 2}, kolo::rank()).t().t(),
                                     torch::ones({2}, torch::kFloat64)};
  const auto gathered = kolo::grouped_allgather(tensors, {.name = "g"});
  EXPECT_TRUE(torch::equal(gathered[0], kolo::allgather(tensors[0])));
  EXPECT_TRUE(torch::equal(gathered[1], torch::ones({2 * size}, torch::kFloat64)));
  const std::vector<torch::Tensor> whole{torch::ones({size, 3}), torch::full({2 * size}, 2)};
  auto works = kolo::grouped_reducescatter_async(whole, {.op = kolo::ReduceOp::kAverage});
  EXPECT_TRUE(torch::equal(works[0].wait(), torch::ones({1, 3})));
  EXPECT_TRUE(torch::equal(kolo::grouped_reducescatter(whole, {.name = "s"})[1],
                           torch::full({2}, 2 * size)));
  static_cast<void>(works[1].wait());
  if (size == 1) return;
  if (kolo::rank() == 1) tensors[1] = torch::ones({2, 2}, torch::kFloat64);
  works = kolo::grouped_allgather_async(tensors, {.name = "g"});
  EXPECT_THAT(message_of([&] { works[0].wait(); }),
              HasSubstr("tensor 'g/0': not done, since 'g/1' of its group 'g' has failed"));
  EXPECT_THAT(message_of([&] { works[1].wait(); }),
              HasSubstr("row shape [], but rank 1 submitted row shape [2]"));
  EXPECT_THAT(message_of([&] { kolo::grouped_allgather(tensors, {.name = "g"}); }),
              HasSubstr("'g/1'"));
}

TEST(Sparse, SumsAndAveragesRows) {
  const auto indices = torch::tensor({{0, kolo::rank() + 1}}, torch::kInt64);
  const auto values = torch::ones({2, 2}) * (kolo::rank() + 1);
  const auto mine = torch::sparse_coo_tensor(indices, values, {kolo::size() + 1, 2});
  const auto expected = kolo::allreduce(mine.to_dense());
  const auto sum = kolo::sparse_allreduce(mine, {.name = "embedding"});
  EXPECT_TRUE(sum.is_coalesced());
  EXPECT_TRUE(torch::equal(sum.to_dense(), expected));
  const auto mean = kolo::sparse_allreduce(mine, {.op = kolo::ReduceOp::kAverage});
  EXPECT_TRUE(torch::allclose(mean.to_dense(), expected / kolo::size()));
  EXPECT_THAT(message_of([] { kolo::sparse_allreduce(torch::ones({2}), {.name = "d"}); }),
              HasSubstr("sparse_allreduce 'd' takes a sparse COO tensor"));
  if (kolo::size() == 1) return;
  const auto odd = torch::sparse_coo_tensor(indices, values, {kolo::size() + 1 + kolo::rank(), 2});
  EXPECT_THAT(message_of([&] { kolo::sparse_allreduce(odd, {.name = "odd"}); }),
              HasSubstr("sparse_allreduce 'odd': rank 0 has Float ["));
}

TEST(Messages, GoRoundTheRing) {
  const int next = (kolo::rank() + 1) % kolo::size();
  const int before = (kolo::rank() + kolo::size() - 1) % kolo::size();
  auto work =
      kolo::send_async(torch::full({5, 2}, kolo::rank(), torch::kFloat32), next, {.tag = 4});
  auto got = torch::zeros({2, 5}).t();
  kolo::recv_(got, before, {.tag = 4});
  work.wait();
  EXPECT_TRUE(torch::equal(got, torch::full({5, 2}, before, torch::kFloat32)));
}

/// A message that one rank refuses fails its peer's message with the reason; the next ones meet.
TEST(Messages, ThatOneRankRefusesAreToldToTheOther) {
  const int last = kolo::size() - 1;
  if (last == 0) return;
  const auto expanded = torch::ones({1}).expand({2});
  const std::string refused = "rank " + std::to_string(last) + ", its other side, has refused it: ";
  if (kolo::rank() == last) {
    EXPECT_EQ(message_of([] { kolo::send(torch::Tensor(), 0, {.tag = 4}); }),
              "the tensor is undefined");
    EXPECT_THAT(message_of([&] { kolo::recv_(expanded, 0, {.tag = 4}); }),
                HasSubstr("share memory"));
    kolo::send(torch::ones({2}), 0, {.tag = 4});
  } else if (kolo::rank() == 0) {
    auto got = torch::zeros({2});
    EXPECT_THAT(message_of([&] { kolo::recv_(got, last, {.tag = 4}); }),
                HasSubstr("recv from rank " + std::to_string(last) + " with tag 4: " + refused +
                          "the tensor is undefined"));
    EXPECT_THAT(message_of([&] { kolo::send(got, last, {.tag = 4}); }),
                HasSubstr(refused + "elements of an output of sizes [2]"));
    EXPECT_TRUE(torch::equal(kolo::recv_(got, last, {.tag = 4}), torch::ones({2})));
  }
}

TEST(ProcessSets, ComeAndGo) {
  std::vector<int> even;
  for (int r = 0; r < kolo::size(); r += 2) even.push_back(r);
  if (kolo::size() == 1) {
    EXPECT_THAT(message_of([&] { kolo::add_process_set(even); }),
                HasSubstr("a process set of ranks 0 already: number 0"));
    return;
  }
  const auto set = kolo::add_process_set(even);
  EXPECT_EQ(set.ranks(), even);
  EXPECT_EQ(set.rank(), kolo::rank() % 2 == 0 ? kolo::rank() / 2 : -1);
  EXPECT_EQ(kolo::process_sets().back(), set);
  if (set.contains(kolo::rank())) {
    const auto sum = kolo::allreduce(torch::ones({3}), {.name = "t", .process_set = set});
    EXPECT_EQ(sum[0].item<double>(), set.size());
    const auto all = kolo::allgather(torch::full({1}, kolo::rank()), {.process_set = set});
    EXPECT_EQ(all.size(0), set.size());
    EXPECT_EQ(all[-1].item<int>(), even.back());
    EXPECT_EQ(kolo::broadcast(torch::full({1}, kolo::rank()), even.back(), {.process_set = set})
                  .item<int>(),
              even.back());
  } else {
    EXPECT_THAT(message_of([&] { kolo::allreduce(torch::ones({3}), {.process_set = set}); }),
                HasSubstr("is not in process set"));
  }
  kolo::remove_process_set(set);
  EXPECT_THAT(message_of([&] { static_cast<void>(set.ranks()); }),
              HasSubstr("it was never added, or was removed"));
}

TEST(Join, AveragesOverThoseThatTakePart) {
  // Rank r has r + 1 batches.
  for (int batch = 0; batch <= kolo::rank(); ++batch) {
    const auto mean = kolo::allreduce(torch::full({4}, kolo::rank(), torch::kFloat32),
                                      {.op = kolo::ReduceOp::kAverage, .name = "loss"});
    EXPECT_FLOAT_EQ(mean[0].item<float>(), static_cast<float>(batch + kolo::size() - 1) / 2);
  }
  EXPECT_EQ(kolo::join(), kolo::size() - 1);
}

template <class Call>
void expect_everywhere(const Call& call, const std::string& words) {
  const std::string message = message_of(call);
  EXPECT_THAT(message, HasSubstr(words));
  // The text is the same on all ranks.
  const auto bytes = torch::tensor(std::vector<std::int64_t>(message.begin(), message.end()));
  EXPECT_TRUE(torch::equal(kolo::broadcast(bytes, 0), bytes)) << message;
}

/// Each misuse has one message on every rank, and the next operation works.
TEST(Misuse, TellsEveryRankTheSame) {
  if (kolo::size() == 1) return;
  const bool odd_one = kolo::rank() == 1;
  const auto expect = [](const auto& call, const std::string& words) {
    expect_everywhere(call, words);
  };
  expect([&] { kolo::allgather(odd_one ? torch::tensor(1.0F) : torch::ones({1}), {.name = "t"}); },
         "tensor 't': rank 1: allgather takes rows, but the tensor is a scalar");
  expect(
      [&] {
        kolo::allgather(torch::ones({2, odd_one ? 4 : 3}), {.name = "t"});
      },
      "submitted row shape [3], but rank 1 submitted row shape [4]");
  expect(
      [&] {
        if (odd_one)
          kolo::broadcast(torch::ones({2}), 0, {.name = "t"});
        else
          kolo::allreduce(torch::ones({2}), {.name = "t"});
      },
      "submitted operation allreduce, but rank 1 submitted operation broadcast");
  expect(
      [&] {
        const auto type = odd_one ? torch::kFloat64 : torch::kFloat32;
        kolo::reducescatter(torch::ones({4}, type), {.name = "t"});
      },
      "submitted type float32, but rank 1 submitted type float64");
  expect([&] { kolo::broadcast(torch::ones({2}), odd_one ? 1 : 0, {.name = "t"}); },
         "submitted root 0, but rank 1 submitted root 1");
  expect([&] { kolo::broadcast(torch::ones({2}), odd_one ? 99 : 0, {.name = "t"}); },
         "tensor 't': rank 1: root 99 is no rank; ranks are 0 to ");
  const auto with_splits = [&](std::vector<std::int64_t> splits) {
    std::vector<std::int64_t> even(static_cast<std::size_t>(kolo::size()), 2);
    kolo::alltoall(torch::ones({2 * kolo::size()}), odd_one ? std::move(splits) : even,
                   {.name = "t"});
  };
  expect([&] { with_splits({1}); }, "tensor 't': rank 1: splits [1] are 1 numbers for ");
  std::vector<std::int64_t> short_splits(static_cast<std::size_t>(kolo::size()), 1);
  expect([&] { with_splits(short_splits); }, "add up to ");
  short_splits.front() = -1;
  expect([&] { with_splits(short_splits); }, "hold a negative number of rows");
  short_splits.assign(short_splits.size(), std::int64_t{1} << 62);
  expect([&] { with_splits(short_splits); }, "add up to 9223372036854775807 rows");
  expect([&] { kolo::alltoall(torch::ones({kolo::size() + 1}), {}, {.name = "t"}); },
         "rows cannot be dealt evenly to ");
  EXPECT_EQ(kolo::allreduce(torch::ones({1}), {.name = "t"}).item<double>(), kolo::size());
}

/// A tensor that rank 1 alone cannot pass fails the call on all ranks at once.
TEST(Misuse, OfATensorOnOneRankIsToldToAll) {
  if (kolo::size() == 1) return;
  const bool odd_one = kolo::rank() == 1;
  const auto expect = [](const auto& call, const std::string& words) {
    expect_everywhere(call, "tensor 't': rank 1: " + words);
  };
  const auto undefined = odd_one ? torch::Tensor() : torch::ones({12, 2});
  const std::string is_undefined = "the tensor is undefined";
  expect([&] { kolo::allreduce(undefined, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::allreduce_(undefined, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::broadcast(undefined, 0, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::broadcast_(undefined, 0, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::allgather(undefined, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::alltoall(undefined, {}, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::reducescatter(undefined, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::gather(undefined, 0, {.name = "t"}); }, is_undefined);
  expect([&] { kolo::scatter(undefined, 0, {}, {.name = "t"}); }, is_undefined);

  const auto allreduce = [&](const torch::Tensor& odd) {
    kolo::allreduce_(odd_one ? odd : torch::ones({3, 3}), {.name = "t"});
  };
  expect([&] { allreduce(torch::eye(3).to_sparse()); }, "the tensor is sparse; make it dense");
  expect([&] { allreduce(torch::ones({3, 3}, torch::kFloat8_e4m3fn)); }, "the tensor has type");
  expect([&] { allreduce(torch::ones({3, 3}, torch::kMeta)); }, "the tensor is on meta");
  expect(
      [&] {
        allreduce(torch::ones({1}).expand({3, 3}));
      },
      "elements of an output of sizes [3, 3] and strides [0, 0] share memory");
  expect(
      [&] {
        const auto output = torch::ones({3}, odd_one ? torch::kFloat64 : torch::kFloat32);
        kolo::start_allreduce(torch::ones({3}), output, {.name = "t"}, false).wait();
      },
      "the tensor: the input is Float [3], but the output Double [3]");

  for (const std::string name : {"t", ""}) {
    const std::vector<torch::Tensor> group{
        torch::ones({2}), odd_one ? torch::eye(3).to_sparse() : torch::ones({3, 3})};
    const auto sparse = "rank 1: the tensor is sparse";
    expect_everywhere([&] { kolo::grouped_allreduce(group, {.name = name}); }, sparse);
    expect_everywhere([&] { kolo::grouped_allreduce_(group, {.name = name}); }, sparse);
    expect_everywhere([&] { kolo::grouped_allgather(group, {.name = name}); }, sparse);
    // An unnamed call is known by its shape and type.
    expect_everywhere([&] { kolo::allreduce(group[1], {.name = name}); }, sparse);
  }
  expect_everywhere(
      [&] {
        const auto rows = torch::eye(3);
        kolo::sparse_allreduce(odd_one ? rows : rows.to_sparse(), {.name = "t"});
      },
      "rank 1: sparse_allreduce 't' takes a sparse COO tensor");
  EXPECT_EQ(kolo::allreduce(torch::ones({1}), {.name = "t"}).item<double>(), kolo::size());
  EXPECT_EQ(kolo::allreduce(torch::ones({3, 3})).sum().item<double>(), 9 * kolo::size());
}

// No rank could know which call it is. Later ones only meet where as many have failed.
TEST(Misuse, UnnamedCallsOnATensorWithoutATypeLeaveLaterOnesInStep) {
  const bool odd_one = kolo::rank() == 1;
  const auto fail = [] {
    EXPECT_EQ(message_of([] { kolo::allreduce(torch::Tensor()); }),
              "allreduce: the tensor is undefined");
  };
  const auto sum = [](double value) {
    return kolo::allreduce_async(torch::full({1}, value), {.op = kolo::ReduceOp::kSum});
  };
  const auto value_of = [](kolo::TensorWork work) {
    return kolo::synchronize(std::move(work)).item<double>();
  };
  kolo::TensorWork first;
  if (!odd_one) first = sum(2);
  fail();
  EXPECT_EQ(value_of(sum(3)), 3 * kolo::size());
  if (!odd_one) {
    EXPECT_EQ(value_of(std::move(first)), 2 * std::max(kolo::size() - 1, 1));
  }
  kolo::join();
  EXPECT_EQ(value_of(sum(4)), 4 * kolo::size());
}

}  // namespace
