// All-reduces over a fake of NCCL: types, order and groups; failures that come at once, later, from
// another rank, or never; and the end.
#include "runtime/nccl/nccl_communicator.h"
#include "runtime/device/device.h"
#include "tests/support/deadlines.h"
#include "tests/support/fake_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace kolo {
namespace {

using test::FakeNccl;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr NcclReduction kFloatSum = {NcclType::kFloat32, NcclOp::kSum, 1};

class NcclWorld {
 public:
  NcclWorld(FakeNccl& nccl, int size) {
    NcclUniqueId id = {};
    EXPECT_EQ(nccl.get_unique_id(id), NcclResult::kSuccess);
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<NcclCommunicator>(
          nccl, NcclCommunicator::Identity{
                    .rank = rank, .size = size, .world_rank = rank, .ordinal = 0}));
      EXPECT_TRUE(ranks_.back()->begin(id).ok());
    }
    for (const auto& rank : ranks_) EXPECT_TRUE(rank->wait(later()).ok());
  }
  ~NcclWorld() {
    each([](int, NcclCommunicator& rank) {
      if (rank.failed()) return;
      EXPECT_TRUE(rank.finish(later()).ok());
    });
  }
  NcclCommunicator& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  void each(const std::function<void(int, NcclCommunicator&)>& body) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      threads.emplace_back([&, rank] { body(static_cast<int>(rank), *ranks_[rank]); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<NcclCommunicator>> ranks_;
};

/// Bytes of any type: small whole numbers that differ between ranks.
std::vector<std::byte> numbers(DataType type, std::size_t count, int rank) {
  std::vector<std::byte> result(count * size_of(type));
  const std::size_t values =
      size_of(type) == 16 || type == DataType::kComplex64 ? 2 * count : count;
  const std::size_t bytes = result.size() / values;
  for (std::size_t i = 0; i < values; ++i) {
    const int value = static_cast<int>(i % 3 + static_cast<std::size_t>(rank)) % 3;
    const auto put = [&](auto number) { std::memcpy(result.data() + i * bytes, &number, bytes); };
    if (type == DataType::kFloat32 || type == DataType::kComplex64) {
      put(static_cast<float>(value));
    } else if (type == DataType::kFloat64 || type == DataType::kComplex128) {
      put(static_cast<double>(value));
    } else if (type == DataType::kBFloat16) {
      put(std::array<std::uint16_t, 3>{0, 0x3f80, 0x4000}[static_cast<std::size_t>(value)]);
    } else if (type == DataType::kFloat16) {
      put(std::array<std::uint16_t, 3>{0, 0x3c00, 0x4000}[static_cast<std::size_t>(value)]);
    } else {
      put(std::int64_t{type == DataType::kBool ? value % 2 : value});  // little-endian
    }
  }
  return result;
}

TEST(NcclCommunicator, EveryTypeAndOperationIsThatOfTheHost) {
  FakeNccl nccl;
  NcclWorld world(nccl, 3);
  constexpr std::size_t kCount = 37;
  int done = 0;
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      const auto reduction = nccl_reduction(type, op);
      if (!reduction.ok()) continue;
      ++done;
      std::vector<std::vector<std::byte>> inputs;
      std::vector<const std::byte*> sources;
      for (int rank = 0; rank < 3; ++rank) inputs.push_back(numbers(type, kCount, rank));
      for (const auto& input : inputs) sources.push_back(input.data());
      std::vector<std::byte> expected(inputs[0].size());
      host_device().reduce(type, op, expected.data(), sources, kCount, {});
      world.each([&](int rank, NcclCommunicator& mine) {
        std::vector<std::byte> output(expected.size());
        const NcclCommunicator::Piece piece{sources[static_cast<std::size_t>(rank)], output.data(),
                                            kCount};
        EXPECT_TRUE(mine.all_reduce(*reduction, {&piece, 1}, nullptr).ok());
        EXPECT_TRUE(mine.wait(later()).ok());
        EXPECT_EQ(output, expected) << to_string(type) << " " << to_string(op);
      });
    }
  }
  EXPECT_EQ(done, 8 * 5 + 4 + 2 * 2);
}

TEST(NcclCommunicator, SeveralPiecesAreOneGroupInOneOrderOnAllRanks) {
  FakeNccl nccl;
  {
    NcclWorld world(nccl, 2);
    world.each([&](int rank, NcclCommunicator& mine) {
      std::vector<float> a(5, static_cast<float>(rank + 1));
      std::vector<float> b(9, 10.0F);
      const auto piece = [](std::vector<float>& values) {
        auto* const bytes = reinterpret_cast<std::byte*>(values.data());
        return NcclCommunicator::Piece{bytes, bytes, values.size()};
      };
      const std::vector<NcclCommunicator::Piece> pieces = {piece(a), piece(b)};
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(mine.all_reduce(kFloatSum, pieces, nullptr).ok());
        EXPECT_TRUE(mine.wait(later()).ok());
      }
      EXPECT_EQ(a, std::vector<float>(5, 6.0F));
      EXPECT_EQ(b, std::vector<float>(9, 40.0F));
    });
  }
  const FakeNccl::Call a{"allreduce", NcclType::kFloat32, NcclOp::kSum, 5};
  const FakeNccl::Call b{"allreduce", NcclType::kFloat32, NcclOp::kSum, 9};
  const std::vector<FakeNccl::Call> all = {{"init"}, a, b, a, b, {"finalize"}, {"destroy"}};
  EXPECT_EQ(nccl.calls(0), all);
  EXPECT_EQ(nccl.calls(1), all);
}

/// Sums one float of each rank.
Status sum_one(NcclCommunicator& rank, float& value) {
  auto* const bytes = reinterpret_cast<std::byte*>(&value);
  const NcclCommunicator::Piece piece{bytes, bytes, 1};
  return rank.all_reduce(kFloatSum, {&piece, 1}, nullptr);
}

TEST(NcclCommunicator, AnErrorThatComesLaterAbortsAndStays) {
  for (const NcclResult result : {NcclResult::kUnhandledCudaError, NcclResult::kRemoteError}) {
    FakeNccl nccl;
    NcclWorld world(nccl, 2);
    nccl.hang();
    nccl.fail(0, "later", result, "the cable is out");
    float value = 1;
    ASSERT_TRUE(sum_one(world[0], value).ok());
    const Status ended = world[0].wait(later());
    ASSERT_FALSE(ended.ok());
    const bool is_remote = result == NcclResult::kRemoteError;
    EXPECT_EQ(ended.error().code, is_remote ? ErrorCode::kPeerLost : ErrorCode::kDevice);
    EXPECT_THAT(ended.error().message, AllOf(HasSubstr("rank 0 ("), HasSubstr("ncclAllReduce"),
                                             HasSubstr("the cable is out")));
    EXPECT_EQ(nccl.calls(0).back().name, "abort");
    // All later calls fail with the same error and do not call NCCL.
    const std::size_t calls = nccl.calls(0).size();
    EXPECT_EQ(sum_one(world[0], value).error().message, ended.error().message);
    EXPECT_EQ(world[0].poll().error().message, ended.error().message);
    EXPECT_EQ(world[0].finish(later()).error().message, ended.error().message);
    EXPECT_EQ(nccl.calls(0).size(), calls);
    world[1].abort(ended.error());
  }
}

TEST(NcclCommunicator, AnErrorOfTheCallItselfLeavesNoGroupOpen) {
  FakeNccl nccl;
  NcclWorld world(nccl, 2);
  nccl.fail(1, "ncclAllReduce", NcclResult::kInvalidArgument, "this is no device memory");
  float value = 1;
  const Status given = sum_one(world[1], value);
  ASSERT_FALSE(given.ok());
  EXPECT_THAT(given.error().message,
              AllOf(HasSubstr("rank 1 ("), HasSubstr("this is no device memory")));
  EXPECT_EQ(nccl.group_start(), NcclResult::kSuccess);  // the fake refuses one inside another
  EXPECT_EQ(nccl.group_end(nullptr), NcclResult::kSuccess);
  world[0].abort(given.error());
}

TEST(NcclCommunicator, AFailureOfAnotherRankAbortsWhatHangs) {
  FakeNccl nccl;
  NcclWorld world(nccl, 2);
  nccl.hang();
  float value = 1;
  ASSERT_TRUE(sum_one(world[0], value).ok());
  const auto polled = world[0].poll();
  ASSERT_TRUE(polled.ok());
  EXPECT_FALSE(*polled);
  world[0].abort(Error{ErrorCode::kPeerLost, "rank 1 is gone"});
  EXPECT_EQ(world[0].poll().error().message, "rank 1 is gone");
  EXPECT_EQ(nccl.count(0, "abort"), 1);
  world[0].abort(Error{ErrorCode::kPeerLost, "again"});
  EXPECT_EQ(world[0].poll().error().message, "rank 1 is gone");
  EXPECT_EQ(nccl.count(0, "abort"), 1);
  world[1].abort(Error{ErrorCode::kPeerLost, "it was me"});
}

TEST(NcclCommunicator, WhatDoesNotEndIsAbortedAtTheDeadline) {
  FakeNccl nccl;
  NcclWorld world(nccl, 2);
  nccl.hang();
  float value = 1;
  ASSERT_TRUE(sum_one(world[0], value).ok());
  const Status ended = world[0].finish(soon());
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(nccl.count(0, "abort"), 1);
  EXPECT_EQ(nccl.count(0, "finalize"), 0);
  world[1].abort(ended.error());
}

TEST(NcclCommunicator, AnEndThatNcclRefusesIsAborted) {
  FakeNccl nccl;
  NcclWorld world(nccl, 1);
  nccl.fail(0, "ncclCommFinalize", NcclResult::kInternalError, "not now");
  const Status ended = world[0].finish(later());
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().message, AllOf(HasSubstr("ncclCommFinalize"), HasSubstr("not now")));
  EXPECT_EQ(nccl.calls(0).back().name, "abort");
}

TEST(NcclCommunicator, OneThatWasNeverReadyIsAbortedByItsDestructor) {
  FakeNccl nccl;
  {
    NcclUniqueId id = {};
    ASSERT_EQ(nccl.get_unique_id(id), NcclResult::kSuccess);
    NcclCommunicator alone(nccl, {.rank = 0, .size = 2});
    ASSERT_TRUE(alone.begin(id).ok());
  }
  EXPECT_EQ(nccl.calls(0).back().name, "abort");
  EXPECT_EQ(nccl.alive(), 0U);
}

}  // namespace
}  // namespace kolo
