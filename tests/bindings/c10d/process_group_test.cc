// ProcessGroupKolo, under mpirun: every call of c10d::Backend against its definition, strides and
// uneven parts, and process sets.
#include "tests/bindings/c10d/group_fixture.h"
#include "tests/support/message_of.h"

#include <kolo/c10d.h>
#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace kolo::test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

TEST_F(ProcessGroup, KnowsItself) {
  EXPECT_EQ(group_->getRank(), rank());
  EXPECT_EQ(group_->getSize(), size());
  EXPECT_EQ(group_->getBackendName(), "kolo");
  const auto options = group_->getBackendOptions();
  EXPECT_EQ(options->backend, "kolo");
  EXPECT_EQ(options->global_ranks_in_group.size(), static_cast<std::size_t>(size()));
}

TEST_F(ProcessGroup, AllreduceOfEveryOperationAndType) {
  using Op = c10d::ReduceOp;
  const std::vector<std::pair<Op::RedOpType, std::function<torch::Tensor(torch::Tensor)>>> cases = {
      {Op::SUM, [](auto all) { return all.sum(0); }},
      {Op::PRODUCT, [](auto all) { return all.prod(0); }},
      {Op::MIN, [](auto all) { return all.amin(0); }},
      {Op::MAX, [](auto all) { return all.amax(0); }},
      {Op::AVG, [](auto all) { return all.sum(0).div(size(), "trunc"); }},
  };
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kFloat16, torch::kBFloat16,
                          torch::kInt64, torch::kInt32, torch::kUInt8}) {
    for (const std::int64_t count : {1, 7, 5000}) {
      for (const auto& [op, expected] : cases) {
        Tensors tensors{mine(count, type)};
        if (op == Op::AVG && torch::isFloatingType(type)) tensors[0].mul_(size());
        auto all = torch::stack(of_all(count, type)).to(torch::kFloat64);
        if (op == Op::AVG && torch::isFloatingType(type)) all.mul_(size());
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        group_->allreduce(tensors, options)->wait();
        EXPECT_TRUE(torch::equal(tensors[0], expected(all).to(type)))
            << torch::toString(type) << " operation " << int{op} << " of " << count;
      }
    }
  }
}

/// Any bits, those of the sign included, as rank `r` gives them.
torch::Tensor bits_of(int r, std::int64_t count, torch::ScalarType type) {
  torch::manual_seed(100 + r);
  const auto bytes = torch::randint(0, 256, {count, 8}, torch::kInt64).to(torch::kUInt8);
  return type == torch::kBool ? bytes.select(1, 0).ge(100)
                              : bytes.view(torch::kInt64).view({count}).to(type);
}

TEST_F(ProcessGroup, BitsAreCombinedAsTorchDoes) {
  using Op = c10d::ReduceOp;
  using Combine = torch::Tensor (*)(const torch::Tensor&, const torch::Tensor&);
  const std::vector<std::pair<Op::RedOpType, Combine>> cases = {
      {Op::BAND, [](const auto& a, const auto& b) { return a.bitwise_and(b); }},
      {Op::BOR, [](const auto& a, const auto& b) { return a.bitwise_or(b); }},
      {Op::BXOR, [](const auto& a, const auto& b) { return a.bitwise_xor(b); }},
  };
  for (const auto type :
       {torch::kInt64, torch::kInt32, torch::kInt16, torch::kInt8, torch::kUInt8, torch::kBool}) {
    for (const auto& [op, combine] : cases) {
      const std::int64_t count = 30 * size();
      torch::Tensor wanted = bits_of(0, count, type);
      for (int r = 1; r < size(); ++r) wanted = combine(wanted, bits_of(r, count, type));
      const auto mine = [&, type = type] { return bits_of(rank(), count, type); };
      const std::string what = std::string(torch::toString(type)) + " " + std::to_string(op);
      Tensors tensors{mine()};
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      group_->allreduce(tensors, options)->wait();
      EXPECT_TRUE(torch::equal(tensors[0], wanted)) << what;
      tensors = {mine().view({size(), 30}).t(), mine()};
      c10d::AllreduceCoalescedOptions of_several;
      of_several.reduceOp = op;
      group_->allreduce_coalesced(tensors, of_several)->wait();
      EXPECT_TRUE(torch::equal(tensors[0], wanted.view({size(), 30}).t())) << what;
      EXPECT_TRUE(torch::equal(tensors[1], wanted)) << what;
      tensors = {mine()};
      c10d::ReduceOptions to_last;
      to_last.reduceOp = op;
      to_last.rootRank = size() - 1;
      group_->reduce(tensors, to_last)->wait();
      EXPECT_TRUE(torch::equal(tensors[0], is_last() ? wanted : mine())) << what;
      c10d::ReduceScatterOptions scatter;
      scatter.reduceOp = op;
      torch::Tensor input = mine();
      torch::Tensor output = torch::empty({30}, input.options());
      group_->_reduce_scatter_base(output, input, scatter)->wait();
      EXPECT_TRUE(torch::equal(output, wanted.narrow(0, 30 * rank(), 30))) << what;
    }
  }
}

TEST_F(ProcessGroup, Factors) {
  c10d::AllreduceOptions options;
  // Each rank has its own factor.
  Tensors tensors{torch::ones({3})};
  options.reduceOp.op_ = c10d::ReduceOp::PREMUL_SUM;
  options.reduceOp.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(rank() + 1.0);
  group_->allreduce(tensors, options)->wait();
  EXPECT_TRUE(torch::equal(tensors[0], torch::full({3}, size() * (size() + 1) / 2.0)));
  tensors = {torch::ones({3}, torch::kInt64)};
  EXPECT_THAT(message_of([&] { group_->allreduce(tensors, options); }), HasSubstr("not Long"));
  tensors = {torch::ones({3}, torch::kBFloat16)};
  group_->allreduce(tensors, options)->wait();
  EXPECT_TRUE(
      torch::equal(tensors[0].to(torch::kFloat32), torch::full({3}, size() * (size() + 1) / 2.0)));
  tensors = {torch::ones({3})};
  options.reduceOp = c10d::ReduceOp::BXOR;
  EXPECT_THAT(message_of([&] { group_->allreduce(tensors, options); }),
              HasSubstr("not Float tensors by BXOR"));
}

TEST_F(ProcessGroup, StridesAndConjugates) {
  Tensors tensors{mine(12).view({3, 4}).t()};
  group_->allreduce(tensors)->wait();
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(12).view({3, 4}).t()));
  auto complex = torch::complex(mine(4), mine(4)).conj();
  tensors = {complex};
  group_->allreduce(tensors)->wait();
  EXPECT_TRUE(torch::equal(complex.resolve_conj(), torch::complex(sum_of(4), -sum_of(4))));
  auto whole = torch::zeros({size(), 2, 3});
  auto output = whole.transpose(1, 2);
  auto input = mine(6).view({2, 3}).t();
  group_->_allgather_base(output, input)->wait();
  for (int r = 0; r < size(); ++r)
    EXPECT_TRUE(torch::equal(whole[r], input_of(r, 6).view({2, 3}))) << r;
}

TEST_F(ProcessGroup, LeavesOfTheGraph) {
  auto leaf = torch::ones({4}, torch::requires_grad());
  Tensors tensors{leaf};
  group_->allreduce(tensors)->wait();
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_EQ(leaf[0].item<float>(), static_cast<float>(size()));
}

TEST_F(ProcessGroup, SeveralAtOnce) {
  Tensors tensors{mine(3), mine(40000, torch::kFloat64), mine(9, torch::kInt64)};
  group_->allreduce_coalesced(tensors)->wait();
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(3)));
  EXPECT_TRUE(torch::equal(tensors[1], sum_of(40000, torch::kFloat64)));
  EXPECT_TRUE(torch::equal(tensors[2], sum_of(9, torch::kInt64)));

  Tensors outputs{torch::empty({size() * 3}), torch::empty({size() * 5000})};
  Tensors inputs{mine(3), mine(5000)};
  group_->allgather_into_tensor_coalesced(outputs, inputs)->wait();
  EXPECT_TRUE(torch::equal(outputs[0], torch::cat(of_all(3))));
  EXPECT_TRUE(torch::equal(outputs[1], torch::cat(of_all(5000))));

  Tensors parts{torch::empty({3}), torch::empty({5000})};
  Tensors wholes{mine(size() * 3), mine(size() * 5000)};
  group_->reduce_scatter_tensor_coalesced(parts, wholes)->wait();
  EXPECT_TRUE(torch::equal(parts[0], sum_of(size() * 3).narrow(0, rank() * 3, 3)));
  EXPECT_TRUE(torch::equal(parts[1], sum_of(size() * 5000).narrow(0, rank() * 5000, 5000)));
}

// Outputs at this rank's own part, and at an offset where no part belongs; by control segments and
// by schedules.
TEST_F(ProcessGroup, OutputsWithinTheInput) {
  for (const std::int64_t count : {2, 100, 20'000, 300'000}) {
    for (const std::int64_t shift : {std::int64_t{0}, std::int64_t{1}, count / 2}) {
      auto memory = torch::zeros({(size() + 1) * count});
      auto input = memory.narrow(0, 0, size() * count);
      input.copy_(mine(size() * count));
      auto output = memory.narrow(0, rank() * count + shift, count);
      group_->_reduce_scatter_base(output, input)->wait();
      EXPECT_TRUE(torch::equal(output, sum_of(size() * count).narrow(0, rank() * count, count)))
          << count << " shifted by " << shift;
    }
  }
}

TEST_F(ProcessGroup, BroadcastAndReduceFromEveryRoot) {
  for (int root = 0; root < size(); ++root) {
    Tensors tensors{mine(6).view({2, 3})};
    c10d::BroadcastOptions from;
    from.rootRank = root;
    group_->broadcast(tensors, from)->wait();
    EXPECT_TRUE(torch::equal(tensors[0], input_of(root, 6).view({2, 3})));

    tensors = {mine(6)};
    c10d::ReduceOptions to;
    to.rootRank = root;
    group_->reduce(tensors, to)->wait();
    EXPECT_TRUE(torch::equal(tensors[0], rank() == root ? sum_of(6) : mine(6)));
  }
}

TEST_F(ProcessGroup, AllgatherOfEvenAndUnevenParts) {
  std::vector<Tensors> outputs(1);
  for (int r = 0; r < size(); ++r) outputs[0].push_back(torch::empty({2, 3}));
  Tensors inputs{mine(6).view({2, 3})};
  group_->allgather(outputs, inputs)->wait();
  for (int r = 0; r < size(); ++r)
    EXPECT_TRUE(torch::equal(outputs[0][static_cast<std::size_t>(r)], input_of(r, 6).view({2, 3})));

  outputs = {{}};
  for (int r = 0; r < size(); ++r) outputs[0].push_back(torch::empty({r + 1, 2}));
  inputs = {rows_of(rank())};
  group_->allgather(outputs, inputs)->wait();
  for (int r = 0; r < size(); ++r)
    EXPECT_TRUE(torch::equal(outputs[0][static_cast<std::size_t>(r)], rows_of(r)));
}

TEST_F(ProcessGroup, GatherAndScatterAtEveryRoot) {
  for (int root = 0; root < size(); ++root) {
    std::vector<Tensors> outputs;
    if (rank() == root) {
      outputs.resize(1);
      for (int r = 0; r < size(); ++r) outputs[0].push_back(torch::empty({r + 1, 2}));
    }
    Tensors inputs{rows_of(rank())};
    c10d::GatherOptions to;
    to.rootRank = root;
    group_->gather(outputs, inputs, to)->wait();
    for (int r = 0; rank() == root && r < size(); ++r)
      EXPECT_TRUE(torch::equal(outputs[0][static_cast<std::size_t>(r)], rows_of(r)));

    std::vector<Tensors> lists;
    if (rank() == root) {
      lists.resize(1);
      for (int r = 0; r < size(); ++r) lists[0].push_back(rows_of(r).add(root));
    }
    Tensors part{torch::empty({rank() + 1, 2})};
    c10d::ScatterOptions from;
    from.rootRank = root;
    group_->scatter(part, lists, from)->wait();
    EXPECT_TRUE(torch::equal(part[0], rows_of(rank()).add(root)));
  }
}

TEST_F(ProcessGroup, GatherIntoOneTensorAtEveryRoot) {
  for (int root = 0; root < size(); ++root) {
    c10d::GatherOptions to;
    to.rootRank = root;
    auto input = torch::full({3, 2}, rank()).t();
    auto output = rank() == root ? torch::empty({2, 3 * size()}, input.options()).t()
                                 : torch::empty({0}, input.options());
    group_->gather_into_tensor(output, input, to)->wait();
    if (rank() == root) {
      const auto rows = torch::arange(size(), input.options()).repeat_interleave(3);
      EXPECT_TRUE(torch::equal(output, rows.unsqueeze(1).expand({-1, 2})));
    }
  }
}

TEST_F(ProcessGroup, ReduceScatterOfListsAndWholes) {
  std::vector<Tensors> lists(1);
  for (int r = 0; r < size(); ++r) lists[0].push_back(mine(4).add(r).view({2, 2}));
  Tensors part{torch::empty({2, 2})};
  group_->reduce_scatter(part, lists)->wait();
  EXPECT_TRUE(torch::equal(part[0], sum_of(4).add(size() * rank()).view({2, 2})));

  auto whole = mine(size() * 3);
  auto output = torch::empty({3});
  c10d::ReduceScatterOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  group_->_reduce_scatter_base(output, whole, options)->wait();
  const auto expected = torch::stack(of_all(size() * 3)).amax(0).narrow(0, rank() * 3, 3);
  EXPECT_TRUE(torch::equal(output, expected));
}

TEST_F(ProcessGroup, AlltoallOfAnySplits) {
  // Even split: rank r's part for rank d is 10 r + d.
  auto input = torch::arange(size()).add(10 * rank()).to(torch::kFloat32).unsqueeze(1);
  auto output = torch::empty({size(), 1});
  std::vector<std::int64_t> none;
  group_->alltoall_base(output, input, none, none)->wait();
  EXPECT_TRUE(torch::equal(
      output, torch::arange(size()).mul(10).add(rank()).to(torch::kFloat32).unsqueeze(1)));
  // Uneven split: d + 1 rows to rank d, so rank + 1 rows from each. Even where one side is even.
  std::vector<std::int64_t> to;
  Tensors expected;
  Tensors inputs;
  for (int d = 0; d < size(); ++d) {
    to.push_back(d + 1);
    inputs.push_back(torch::full({d + 1, 2}, 10 * rank() + d, torch::kFloat32));
    expected.push_back(torch::full({rank() + 1, 2}, 10 * d + rank(), torch::kFloat32));
  }
  auto rows = torch::cat(inputs);
  auto received = torch::empty({size() * (rank() + 1), 2});
  group_->alltoall_base(received, rows, none, to)->wait();
  EXPECT_TRUE(torch::equal(received, torch::cat(expected)));
  // Now as lists.
  Tensors outputs;
  for (int d = 0; d < size(); ++d) outputs.push_back(torch::empty({rank() + 1, 2}));
  group_->alltoall(outputs, inputs)->wait();
  EXPECT_TRUE(torch::equal(torch::cat(outputs), torch::cat(expected)));
  EXPECT_THAT(message_of([&] {
                std::vector<std::int64_t> wrong(static_cast<std::size_t>(size()), 1000);
                group_->alltoall_base(received, rows, none, wrong);
              }),
              HasSubstr("splits of the input"));
}

TEST_F(ProcessGroup, Messages) {
  if (size() == 1) GTEST_SKIP() << "a message needs two ranks";
  const int next = (rank() + 1) % size();
  const int before = (rank() + size() - 1) % size();
  Tensors out{mine(6).view({2, 3}).t()};
  Tensors in{torch::empty({3, 2})};
  const auto received = group_->recv(in, before, 7);
  const auto sent = group_->send(out, next, 7);
  sent->wait();
  received->wait();
  EXPECT_EQ(received->sourceRank(), before);
  EXPECT_TRUE(torch::equal(in[0], input_of(before, 6).view({2, 3}).t()));
}

TEST_F(ProcessGroup, OfAProcessSetWithRanksOfItsOwn) {
  if (size() < 3) GTEST_SKIP() << "needs a rank outside";
  std::vector<int> ranks;
  for (int r = 1; r < size(); ++r) ranks.push_back(r);
  const auto set = kolo::add_process_set(ranks);
  if (rank() == 0) {
    EXPECT_THAT(message_of([&] { kolo::ProcessGroupKolo outside(set); }),
                HasSubstr("rank 0 is not in process set"));
  } else {
    kolo::ProcessGroupKolo group(set);
    EXPECT_EQ(group.getRank(), rank() - 1);
    Tensors tensors{mine(3)};
    c10d::BroadcastOptions options;
    options.rootRank = 1;
    group.broadcast(tensors, options)->wait();
    EXPECT_TRUE(torch::equal(tensors[0], input_of(2, 3)));
    options.rootRank = group.getSize();
    EXPECT_THAT(message_of([&] { group.broadcast(tensors, options); }),
                HasSubstr("there is no rank " + std::to_string(group.getSize())));
    std::vector<Tensors> outputs(1);
    for (int r = 0; r < group.getSize(); ++r) outputs[0].push_back(torch::empty({3}));
    Tensors inputs{mine(3)};
    group.allgather(outputs, inputs)->wait();
    EXPECT_TRUE(torch::equal(outputs[0][0], input_of(1, 3)));
    if (group.getRank() == 0) {
      group.send(inputs, 1, 0)->wait();
    } else if (group.getRank() == 1) {
      Tensors from{torch::empty({3})};
      group.recv(from, 0, 0)->wait();
      EXPECT_TRUE(torch::equal(from[0], input_of(1, 3)));
    }
  }
  kolo::remove_process_set(set);
}

TEST_F(ProcessGroup, SizesThatRanksDisagreeOn) {
  if (size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  // Rank 0 sends each rank one row more than that rank takes.
  auto input = torch::ones({size() * (rank() == 0 ? 2 : 1)});
  auto output = torch::empty({size() + (rank() == 0 ? 1 : 0)});
  std::vector<std::int64_t> none;
  std::vector<std::int64_t> from(static_cast<std::size_t>(size()), 1);
  if (rank() == 0) from[0] = 2;
  const auto work = group_->alltoall_base(output, input, from, none);
  const std::string message = message_of([&] { work->wait(); });
  if (rank() == 0) {
    EXPECT_EQ(message, "(no error)");
  } else {
    EXPECT_THAT(message, HasSubstr("all_to_all_single: 2 elements came from rank 0, but the output "
                                   "for them has 1"));
    EXPECT_FALSE(work->isSuccess());
    EXPECT_NE(work->exception(), nullptr);
    const auto future = work->getFuture();
    future->wait();
    EXPECT_TRUE(future->hasError());
  }
}

TEST(ProcessGroupOfTorch, DispatchesToKolo) {
  const auto group = kolo::process_group();
  EXPECT_EQ(group->getRank(), rank());
  EXPECT_EQ(group->getSize(), size());
  Tensors tensors{mine(3)};
  group->allreduce(tensors)->wait();
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(3)));
  std::vector<Tensors> outputs(1);
  for (int r = 0; r < size(); ++r) outputs[0].push_back(torch::empty({3}));
  Tensors inputs{mine(3)};
  group->allgather(outputs, inputs)->wait();
  EXPECT_TRUE(torch::equal(torch::cat(outputs[0]), torch::cat(of_all(3))));
  group->barrier()->wait();
}

}  // namespace
