// ProcessGroupKolo as torch.distributed uses it: calls that become one work, receives from any
// rank, sparse sums, and groups that their members alone make and end. Under mpirun and alone. How
// torch.distributed itself uses them is in tests/bindings/python.
#include "tests/bindings/c10d/group_fixture.h"
#include "tests/support/message_of.h"

#include <kolo/c10d.h>
#include <kolo/torch.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace {

using namespace kolo::test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;
using Backend = kolo::ProcessGroupKolo;

TEST_F(ProcessGroup, CoalescedCallsAreOneWork) {
  Tensors first{mine(7)};
  Tensors second{mine(5000)};
  group_->startCoalescing();
  EXPECT_THAT(message_of([&] { group_->startCoalescing(); }), HasSubstr("was called twice"));
  group_->allreduce(first);
  const auto single = group_->allreduce(second);
  const auto all = group_->endCoalescing();
  all->wait();
  EXPECT_TRUE(single->isCompleted());
  EXPECT_EQ(all->result().size(), 2U);
  EXPECT_TRUE(torch::equal(first[0], sum_of(7)));
  EXPECT_TRUE(torch::equal(second[0], sum_of(5000)));
  group_->startCoalescing();
  EXPECT_TRUE(group_->endCoalescing()->wait());
}

TEST_F(ProcessGroup, AllgatherCoalesced) {
  Tensors inputs{mine(3), mine(2).view({2, 1})};
  std::vector<Tensors> outputs;
  for (int r = 0; r < size(); ++r) outputs.push_back({torch::empty({3}), torch::empty({2, 1})});
  group_->allgather_coalesced(outputs, inputs)->wait();
  for (int r = 0; r < size(); ++r) {
    const Tensors& of_rank = outputs[static_cast<std::size_t>(r)];
    EXPECT_TRUE(torch::equal(of_rank[0], input_of(r, 3)));
    EXPECT_TRUE(torch::equal(of_rank[1], input_of(r, 2).view({2, 1})));
  }
  outputs.pop_back();
  EXPECT_THAT(message_of([&] { group_->allgather_coalesced(outputs, inputs); }),
              HasSubstr("lists of outputs, one of each rank"));
}

TEST_F(ProcessGroup, ReceivesFromAnyRank) {
  if (size() == 1) GTEST_SKIP() << "nobody sends";
  if (rank() > 0) {
    Tensors sent{mine(4)};
    group_->send(sent, 0, 3)->wait();
    return;
  }
  std::vector<int> senders;
  for (int i = 1; i < size(); ++i) {
    Tensors got{torch::empty({4})};
    const auto work = group_->recvAnysource(got, 3);
    work->wait();
    senders.push_back(work->sourceRank());
    EXPECT_TRUE(torch::equal(got[0], input_of(senders.back(), 4)));
  }
  std::sort(senders.begin(), senders.end());
  for (int i = 1; i < size(); ++i) EXPECT_EQ(senders[static_cast<std::size_t>(i) - 1], i);
}

TEST_F(ProcessGroup, SparseSums) {
  // Rank r has r + 1 rows; all have row 0.
  const auto sparse_of = [](int r) {
    auto dense = torch::zeros({size() + 1, 2});
    dense.slice(0, 0, r + 1).fill_(r + 1);
    return dense;
  };
  Tensors tensors{sparse_of(rank()).to_sparse(1)};
  group_->allreduce(tensors)->wait();
  auto sum = torch::zeros({size() + 1, 2});
  for (int r = 0; r < size(); ++r) sum += sparse_of(r);
  EXPECT_TRUE(tensors[0].is_coalesced());
  EXPECT_TRUE(torch::equal(tensors[0].to_dense(), sum));
  // Also where a rank has none, and where gradients pass afterwards.
  Tensors some{rank() == 0 ? torch::eye(2).to_sparse() : torch::zeros({2, 2}).to_sparse()};
  group_->allreduce(some)->wait();
  EXPECT_TRUE(torch::equal(some[0].to_dense(), torch::eye(2)));
  auto factor = torch::ones({2, 2}, torch::requires_grad());
  torch::mm(some[0], factor).sum().backward();
  EXPECT_TRUE(factor.grad().defined());
}

TEST_F(ProcessGroup, SplitsOffSomeRanksAndEndsThem) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const bool is_member = rank() > 0 || size() == 1;
  std::vector<int> members;
  for (int r = size() == 1 ? 0 : 1; r < size(); ++r) members.push_back(r);
  for (int i = 0; i < 8 && is_member; ++i) {  // more than there are partitions
    const auto part = group_->split(store, members, nullptr);
    EXPECT_EQ(part->getRank(), rank() - members.front());
    Tensors tensors{torch::ones({3})};
    part->allreduce(tensors)->wait();
    EXPECT_EQ(tensors[0][0].item<float>(), static_cast<float>(members.size()));
    part->shutdown();
    EXPECT_NE(message_of([&] { part->allreduce(tensors); }), "");
  }
  group_->barrier()->wait();
  EXPECT_THAT(message_of([&] { group_->split(store, {size()}, nullptr); }), HasSubstr("no rank"));
  EXPECT_THAT(message_of([&] { group_->split(store, {}, nullptr); }), HasSubstr("a rank or more"));
}

TEST_F(ProcessGroup, CreationChecksWhatItIsGiven) {
  const auto refusal = [](const Backend::Description& description) {
    return message_of([&] { (void)Backend::create(description); });
  };
  EXPECT_THAT(refusal({.rank = 2, .size = 2}), HasSubstr("no rank 2 in a group of 2 ranks"));
  EXPECT_THAT(refusal({.rank = 0, .size = 2, .global_ranks = {0}}), HasSubstr("global ranks [0]"));
  EXPECT_THAT(refusal({.rank = 0, .size = 2, .global_ranks = {1, 0}}), HasSubstr("ascending"));
  EXPECT_THAT(refusal({.rank = 0, .size = size() + 1}),
              HasSubstr("kolo::init() has made it rank " + std::to_string(rank())));
  EXPECT_THAT(refusal({.rank = 0, .size = 1, .global_ranks = {size()}}),
              HasSubstr("is not in kolo's world"));
  if (kolo::device_ordinal() < 0) {
    EXPECT_THAT(refusal({.rank = rank(), .size = size(), .device = 3}),
                HasSubstr("the group's device is cuda:3, but that of rank " +
                          std::to_string(rank()) + " in kolo's world is the CPU"));
  }
  const auto group = Backend::create({.rank = rank(), .size = size()});
  Tensors tensors{mine(3)};
  group->allreduce(tensors)->wait();
  EXPECT_TRUE(torch::equal(tensors[0], sum_of(3)));
  group->shutdown();  // the world is the program's
  EXPECT_TRUE(kolo::is_initialized());
  EXPECT_EQ(group->getError(), c10d::ErrorType::SUCCESS);
}

}  // namespace
