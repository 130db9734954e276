// Calls of a ProcessGroupKolo that cannot work, on all ranks or on one alone, under mpirun. Those
// that end communication are in out_of_step_test.cc.
#include "tests/bindings/c10d/group_fixture.h"
#include "tests/support/message_of.h"

#include <kolo/c10d.h>
#include <kolo/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace kolo::test;  // NOLINT(google-build-using-namespace)
using testing::AllOf;
using testing::HasSubstr;

TEST_F(ProcessGroup, WhatItRefuses) {
  Tensors two{mine(2), mine(2)};
  EXPECT_THAT(message_of([&] { group_->allreduce(two); }), HasSubstr("takes one tensor, not 2"));
  Tensors undefined{torch::Tensor()};
  EXPECT_THAT(message_of([&] { group_->allreduce(undefined); }), HasSubstr("undefined"));
  Tensors sparse{torch::eye(2).to_sparse()};
  c10d::AllreduceOptions maximum;
  maximum.reduceOp = c10d::ReduceOp::MAX;
  EXPECT_THAT(message_of([&] { group_->allreduce(sparse, maximum); }),
              HasSubstr("kolo reduces sparse tensors by SUM"));
  EXPECT_THAT(message_of([&] { group_->broadcast(sparse); }), HasSubstr("the tensor is sparse"));
  auto output = torch::empty({size() + 1});
  auto input = torch::empty({1});
  EXPECT_THAT(message_of([&] { group_->_allgather_base(output, input); }),
              HasSubstr("the output has " + std::to_string(size() + 1) + " elements instead of " +
                        std::to_string(size())));
  auto other = torch::empty({size()}, torch::kInt32);
  EXPECT_THAT(message_of([&] { group_->_allgather_base(other, input); }),
              HasSubstr("types Int and Float"));
  Tensors expanded{torch::zeros({1}).expand({2})};
  const auto shares_memory =
      HasSubstr("an output of sizes [2] and strides [0] share memory, as after expand()");
  EXPECT_THAT(message_of([&] { group_->allreduce(expanded); }), shares_memory);
  EXPECT_THAT(message_of([&] { group_->broadcast(expanded); }), shares_memory);
  constexpr int kNobodysTag = 99;  // a refused message keeps its place among those of its tag
  EXPECT_THAT(message_of([&] { group_->recv(expanded, 0, kNobodysTag); }), shares_memory);
  std::vector<Tensors> lists{Tensors(static_cast<std::size_t>(size()), expanded[0])};
  EXPECT_THAT(message_of([&] { group_->allgather(lists, expanded); }), shares_memory);
  c10d::AllreduceOptions without_factor;
  without_factor.reduceOp.op_ = c10d::ReduceOp::PREMUL_SUM;
  Tensors message{mine(1)};
  EXPECT_THAT(message_of([&] { group_->allreduce(message, without_factor); }),
              HasSubstr("no factor"));
  EXPECT_THAT(message_of([&] { group_->send(message, size(), 0); }), HasSubstr("no rank"));
  EXPECT_THAT(message_of([&] { group_->send(message, 0, -1); }), HasSubstr("negative"));
  EXPECT_THAT(message_of([&] { group_->recvAnysource(two, 0); }),
              HasSubstr("takes one tensor, not 2"));
  EXPECT_THAT(message_of([&] { group_->monitoredBarrier({}); }), HasSubstr("needs the store"));
  EXPECT_THAT(message_of([&] { group_->endCoalescing(); }), HasSubstr("without startCoalescing"));
}

/// One rank's call fails at once; that of all other ranks fails with its reason. Later calls match.
TEST_F(ProcessGroup, WhatOneRankRefusesFailsOnAllAndNothingElse) {
  if (size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const bool refuses = is_last();
  const int root = size() - 2;
  const auto expect_refused = [&](const char* call, const std::string& why, const auto& start) {
    const std::string message = message_of([&] { start()->wait(); });
    EXPECT_THAT(message, HasSubstr(std::string("c10d ") + call + ": "));
    EXPECT_THAT(message, HasSubstr(why));
    if (!refuses) {
      EXPECT_THAT(message, HasSubstr("rank " + std::to_string(size() - 1) + ": c10d ")) << call;
    }
  };
  const auto list = [&](int tensors) {
    Tensors result;
    for (int r = 0; r < tensors; ++r) result.push_back(torch::empty({r + 1}));
    return result;
  };
  for (int again = 0; again < 2; ++again) {
    Tensors inputs{mine(rank() + 1)};
    Tensors odd{mine(rank() + (refuses ? 2 : 1))};
    std::vector<Tensors> uneven{list(size())};
    std::vector<Tensors> none;
    std::vector<Tensors>& at_root = rank() == root ? uneven : none;
    expect_refused("allgather", "the input has", [&] { return group_->allgather(uneven, odd); });
    std::vector<Tensors> unwanted{list(refuses ? size() : 0)};
    c10d::GatherOptions gathers;
    gathers.rootRank = root;
    expect_refused("gather", "takes outputs at the root alone",
                   [&] { return group_->gather(refuses ? unwanted : at_root, inputs, gathers); });
    Tensors outputs{torch::empty({rank() + 1})};
    c10d::ScatterOptions scatters;
    scatters.rootRank = root;
    expect_refused("scatter", "takes inputs at the root alone", [&] {
      return group_->scatter(outputs, refuses ? unwanted : at_root, scatters);
    });
    Tensors parts = list(size());
    Tensors sent = list(size());
    for (torch::Tensor& tensor : sent) tensor = torch::ones({rank() + 1});
    if (refuses) parts.pop_back();
    expect_refused("alltoall", "takes", [&] { return group_->alltoall(parts, sent); });
    auto whole = torch::ones({size() + (refuses ? 1 : 0)});
    auto received = torch::empty({size()});
    std::vector<std::int64_t> even;
    expect_refused("all_to_all_single", "cannot be split evenly",
                   [&] { return group_->alltoall_base(received, whole, even, even); });
    c10d::GatherOptions wrong_root;
    wrong_root.rootRank = refuses ? size() : root;
    expect_refused("gather", "there is no rank " + std::to_string(size()),
                   [&] { return group_->gather(at_root, inputs, wrong_root); });
    scatters.rootRank = wrong_root.rootRank;
    expect_refused("scatter", "there is no rank " + std::to_string(size()),
                   [&] { return group_->scatter(outputs, at_root, scatters); });
    // Types that kolo does not take; nothing tells the others what this rank's call was to be.
    const auto quantized = [](const torch::Tensor& tensor) {
      return torch::quantize_per_tensor(tensor, /*scale=*/1, /*zero_point=*/0, torch::kQInt8);
    };
    const auto typed = [&](const Tensors& tensors) {
      Tensors result;
      for (const torch::Tensor& tensor : tensors)
        result.push_back(refuses ? quantized(tensor) : tensor);
      return result;
    };
    Tensors typed_inputs = typed(inputs);
    expect_refused("gather", "has type",
                   [&] { return group_->gather(at_root, typed_inputs, gathers); });
    Tensors typed_sent = typed(list(size()));
    Tensors typed_parts = typed(sent);
    expect_refused("alltoall", "has type",
                   [&] { return group_->alltoall(typed_parts, typed_sent); });
    // A message of the last rank to rank 0, and one of rank 0 to the last rank.
    Tensors untyped{torch::zeros({2})};
    if (refuses) untyped[0] = quantized(untyped[0]);
    if (refuses) {
      EXPECT_THAT(message_of([&] { group_->send(untyped, 0, 3); }), HasSubstr("has type"));
      EXPECT_THAT(message_of([&] { group_->recv(untyped, 0, 3); }), HasSubstr("has type"));
    } else if (rank() == 0) {
      const auto is_told = AllOf(
          HasSubstr("rank " + std::to_string(size() - 1) + ", its other side, has refused it"),
          HasSubstr("has type"));
      EXPECT_THAT(message_of([&] { group_->recv(untyped, size() - 1, 3)->wait(); }), is_told);
      EXPECT_THAT(message_of([&] { group_->send(untyped, size() - 1, 3)->wait(); }), is_told);
    }
    // All go on together.
    group_->allgather(uneven, inputs)->wait();
    EXPECT_TRUE(torch::equal(uneven[0].back(), input_of(size() - 1, size())));
    if (refuses || rank() == 0) {
      Tensors token{mine(1)};
      (refuses ? group_->send(token, 0, 3) : group_->recv(token, size() - 1, 3))->wait();
      EXPECT_TRUE(torch::equal(token[0], input_of(size() - 1, 1)));
    }
    Tensors sums{mine(3)};
    group_->allreduce(sums)->wait();
    EXPECT_TRUE(torch::equal(sums[0], sum_of(3)));
  }
}

/// Each rank's call could work, but not with the others'.
TEST_F(ProcessGroup, WhatDiffersBetweenRanksFailsOnAllAndNothingElse) {
  if (size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  Tensors inputs{mine(3)};
  std::vector<Tensors> outputs;
  c10d::GatherOptions to;
  to.rootRank = is_last() ? 1 : 0;
  if (rank() == to.rootRank) outputs = {Tensors(static_cast<std::size_t>(size()), mine(3))};
  EXPECT_THAT(message_of([&] { group_->gather(outputs, inputs, to)->wait(); }),
              AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
  const auto type = is_last() ? torch::kFloat64 : torch::kFloat32;
  Tensors parts(static_cast<std::size_t>(size()), torch::empty({2}, type));
  Tensors sent(static_cast<std::size_t>(size()), torch::empty({2}, type));
  EXPECT_THAT(message_of([&] { group_->alltoall(parts, sent)->wait(); }),
              AllOf(HasSubstr("float32"), HasSubstr("float64")));
  Tensors sums{mine(3)};
  group_->allreduce(sums)->wait();
  EXPECT_TRUE(torch::equal(sums[0], sum_of(3)));
}

// The operation on a later tensor is invalid: earlier tensors must not be reduced either.
TEST_F(ProcessGroup, WhatIsRefusedHasBegunNothing) {
  using Op = c10d::ReduceOp;
  const std::vector<std::pair<Op::RedOpType, torch::ScalarType>> cases = {
      {Op::PREMUL_SUM, torch::kInt32}, {Op::AVG, torch::kBool}, {Op::MAX, torch::kComplexFloat}};
  for (const auto& [op, type] : cases) {
    c10d::AllreduceCoalescedOptions options;
    options.reduceOp.op_ = op;
    options.reduceOp.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(2.0);
    Tensors tensors{mine(3), mine(3, type)};
    EXPECT_THAT(message_of([&] { group_->allreduce_coalesced(tensors, options); }),
                HasSubstr("not " + std::string(torch::toString(type))));
    Tensors parts{torch::zeros({3}), torch::zeros({3}, type)};
    Tensors wholes{torch::ones({3 * size()}), torch::ones({3 * size()}, type)};
    EXPECT_THAT(message_of([&] {
                  group_->reduce_scatter_tensor_coalesced(parts, wholes,
                                                          {.reduceOp = options.reduceOp});
                }),
                HasSubstr("not " + std::string(torch::toString(type))));
    kolo::barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(torch::equal(tensors[0], mine(3))) << int{op};
    EXPECT_TRUE(torch::equal(parts[0], torch::zeros({3}))) << int{op};
  }
}

}  // namespace
