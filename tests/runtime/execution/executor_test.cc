// The executor step by step, over a transport whose transfers the test completes by hand.
#include "runtime/execution/executor.h"

#include "runtime/collectives/allreduce_ring.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/manual_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace kolo::test {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks[] = {10, 11, 12};  // the communicator's ranks are others than the transport's

class ExecutorTest : public ::testing::Test {
 protected:
  Operand input(std::uint64_t offset, std::uint64_t length) {
    return {Space::kInput, -1, offset, length};
  }
  Operand output(std::uint64_t offset, std::uint64_t length) {
    return {Space::kOutput, -1, offset, length};
  }
  Operand scratch(std::uint64_t offset, std::uint64_t length) {
    return {Space::kScratch, -1, offset, length};
  }

  static std::byte* bytes(std::vector<float>& values, std::size_t from = 0) {
    return reinterpret_cast<std::byte*>(values.data() + from);
  }

  MemoryBinding bind() {
    MemoryBinding binding;
    binding.input.append(bytes(input_), input_.size());
    binding.output.append(bytes(output_), output_.size());
    binding.scratch = bytes(scratch_);
    return binding;
  }

  void start(ScheduleBuilder builder, MemoryBinding binding) {
    executor_.start(std::make_shared<const Schedule>(std::move(builder).finish()),
                    std::move(binding), 5, 77, std::span(kRanks).first(2));
  }

  std::vector<float> input_ = std::vector<float>(8, 1.0F);
  std::vector<float> output_ = std::vector<float>(8, 0.0F);
  std::vector<float> scratch_ = std::vector<float>(8, 0.0F);
  ManualTransport transport_;
  Executor executor_{transport_, host_device()};
};

TEST_F(ExecutorTest, AnEmptyScheduleIsDoneAtOnce) {
  EXPECT_TRUE(executor_.done());
  start(ScheduleBuilder("nothing", 0, 2, 8), bind());
  EXPECT_TRUE(executor_.done());
  EXPECT_FALSE(executor_.advance());
}

TEST_F(ExecutorTest, PostsTransfersBeforeLocalWorkAndUnpacksLast) {
  ScheduleBuilder builder("order", 0, 2, 8);
  // Listed in another order than they must run.
  builder.copy(scratch(0, 4), {output(0, 4)}, Scaling::kNone, {});  // nobody waits for it
  const StepId packed = builder.copy(input(0, 4), {scratch(4, 4)}, Scaling::kNone, {});
  builder.send(1, 3, scratch(4, 4), {packed});
  builder.receive(1, 4, scratch(0, 1), {packed});
  scratch_.assign(8, 9.0F);
  start(std::move(builder), bind());

  transport_.on_post = [&] { EXPECT_EQ(output_[0], 0.0F) << "unpacked before a transfer began"; };
  EXPECT_TRUE(executor_.advance());
  ASSERT_EQ(transport_.posted.size(), 2u);
  EXPECT_TRUE(transport_.posted[0].is_send);
  EXPECT_EQ(transport_.posted[0].peer, 11);
  EXPECT_EQ(transport_.posted[0].tag, (Tag{.communicator = 5, .step = 3, .operation = 77}));
  EXPECT_EQ(transport_.posted[0].data.data(), bytes(scratch_, 4));
  EXPECT_EQ(transport_.posted[0].data.size(), 16u);
  EXPECT_THAT(executor_.dump_state(), HasSubstr("2 of 4 steps done, 2 transfers under way; waits "
                                                "for step 2 (send to rank 11, tag 3), step 3"));
  EXPECT_FALSE(executor_.done());
  transport_.complete(0);
  transport_.complete(0);
  EXPECT_TRUE(executor_.done());
  EXPECT_EQ(output_[0], 9.0F);
}

TEST_F(ExecutorTest, BoundsTheWorkOfOneCall) {
  std::vector<float> large(1 << 20, 1.0F);
  ScheduleBuilder builder("long", 0, 2, large.size());
  for (std::uint64_t i = 0; i < 64; ++i)
    builder.copy(input(i << 14, 1 << 14), {output(i << 14, 1 << 14)}, Scaling::kPost, {});
  MemoryBinding binding;
  binding.postscale.factor = 2;
  binding.input.append(bytes(large), large.size());
  binding.output.append(bytes(large), large.size());
  start(std::move(builder), std::move(binding));
  int calls = 0;
  while (executor_.advance()) ++calls;
  EXPECT_TRUE(executor_.done());
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(large.front() + large.back(), 4.0F);
}

TEST_F(ExecutorTest, AFailedTransferNamesAlgorithmPeerAndStep) {
  ScheduleBuilder builder("ring_of_two", 0, 2, 8);
  builder.send(1, 0, input(0, 8), {});
  const StepId received = builder.receive(1, 1, scratch(0, 8), {});
  builder.copy(scratch(0, 8), {output(0, 8)}, Scaling::kNone, {received});
  start(std::move(builder), bind());
  executor_.advance();
  transport_.complete(1, KOLO_ERROR(kPeerLost, "rank 11 has left"));
  EXPECT_TRUE(executor_.failed());
  EXPECT_FALSE(executor_.done()) << "the send still reads the user's memory";
  EXPECT_FALSE(executor_.advance());
  EXPECT_EQ(executor_.status().error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(executor_.status().error().message,
            "rank 10: ring_of_two: step 1 (receive from rank 11, tag 1): rank 11 has left");
  transport_.complete(0, KOLO_ERROR(kAborted, "a later failure"));
  EXPECT_TRUE(executor_.done());
  EXPECT_EQ(executor_.status().error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(executor_.dump_state(), HasSubstr("failed: rank 10: ring_of_two"));

  start(ScheduleBuilder("again", 0, 2, 8), bind());  // the object is as new
  EXPECT_TRUE(executor_.done());
  EXPECT_FALSE(executor_.failed());
}

TEST_F(ExecutorTest, RefusesToSendWhatIsNotContiguous) {
  MemoryBinding binding = bind();
  binding.input.clear();
  binding.input.append(bytes(input_), 3);
  binding.input.append(bytes(input_, 4), 4);
  ScheduleBuilder builder("scattered", 0, 2, 7);
  builder.send(1, 0, input(2, 2), {});
  start(std::move(builder), std::move(binding));
  executor_.advance();
  EXPECT_TRUE(executor_.done());
  EXPECT_EQ(executor_.status().error().code, ErrorCode::kInternal);
  EXPECT_THAT(executor_.status().error().message, HasSubstr("elements 2 … 4"));
}

TEST_F(ExecutorTest, RefusesOperandsThatAreNotBound) {
  for (const Operand& operand : {Operand{Space::kPeer, 1, 0, 8}, Operand{Space::kPeer, 7, 0, 8},
                                 Operand{Space::kInput, -1, 1, 8}}) {
    ScheduleBuilder builder("unbound", 0, 2, 9);
    builder.copy(operand, {scratch(0, 8)}, Scaling::kNone, {});
    MemoryBinding binding = bind();
    binding.peers.assign(2, {});
    start(std::move(builder), std::move(binding));
    executor_.advance();
    EXPECT_EQ(executor_.status().error().code, ErrorCode::kInternal);
    EXPECT_THAT(executor_.status().error().message, HasSubstr("outside of the memory"));
  }
}

TEST_F(ExecutorTest, PrescaleTouchesTheInputAlone) {
  std::iota(input_.begin(), input_.end(), 0.0F);
  ScheduleBuilder builder("scaled", 0, 2, 8);
  builder.copy(scratch(0, 4), {output(0, 4)}, Scaling::kPre, {});
  builder.reduce({scratch(4, 4), input(4, 4)}, {output(4, 4)}, Scaling::kBoth, {});
  scratch_.assign(8, 1.0F);
  MemoryBinding binding = bind();
  binding.prescale.factor = 10;
  binding.postscale.divisor = 2;
  start(std::move(builder), std::move(binding));
  executor_.advance();
  EXPECT_EQ(output_, (std::vector<float>{1, 1, 1, 1, 20.5, 25.5, 30.5, 35.5}));
}

TEST_F(ExecutorTest, WritesSeveralDestinationsOverTheirOwnSource) {
  std::vector<float> large(5000, 1.0F), second(5000), third(5000, 2.0F);
  ScheduleBuilder builder("fan_out", 0, 2, 5000);
  const Operand peer0{Space::kPeer, 0, 0, 5000}, peer1{Space::kPeer, 1, 0, 5000};
  const StepId first = builder.copy(input(0, 5000), {output(0, 5000), peer0}, Scaling::kPre, {});
  builder.reduce({peer0, peer1}, {peer0, peer1}, Scaling::kNone, {first});
  MemoryBinding binding;
  binding.prescale.factor = 3;
  binding.input.append(bytes(large), 5000);
  binding.output.append(bytes(large), 5000);  // scaled in place: must not be scaled twice
  binding.peers = {{.scratch = bytes(second)}, {.scratch = bytes(third)}};
  start(std::move(builder), std::move(binding));
  while (executor_.advance()) {
  }
  EXPECT_EQ(large, std::vector<float>(5000, 3.0F));
  EXPECT_EQ(second, std::vector<float>(5000, 5.0F));
  EXPECT_EQ(third, std::vector<float>(5000, 5.0F));
}

TEST_F(ExecutorTest, ScalesAnInputThatIsAddedToItsDestination) {
  scratch_.assign(5000, 1.0F);
  std::vector<float> large(5000, 2.0F);
  ScheduleBuilder builder("in_place", 0, 2, 5000);
  builder.reduce({scratch(0, 5000), input(0, 5000)}, {scratch(0, 5000)}, Scaling::kPre, {});
  MemoryBinding binding;
  binding.prescale.factor = 3;
  binding.input.append(bytes(large), 5000);
  binding.scratch = bytes(scratch_);
  start(std::move(builder), std::move(binding));
  executor_.advance();
  EXPECT_EQ(scratch_, std::vector<float>(5000, 7.0F));
  EXPECT_EQ(large, std::vector<float>(5000, 2.0F));
}

TEST_F(ExecutorTest, RefusesToScaleTwoInputs) {
  ScheduleBuilder builder("two_inputs", 0, 2, 8);
  builder.reduce({input(0, 4), input(4, 4)}, {scratch(0, 4)}, Scaling::kPre, {});
  scratch_.resize(4);
  MemoryBinding binding = bind();
  binding.prescale.factor = 2;
  start(std::move(builder), std::move(binding));
  executor_.advance();
  ASSERT_TRUE(executor_.failed());
  EXPECT_THAT(executor_.status().error().message, HasSubstr("a reduce with a prescale"));
}

TEST_F(ExecutorTest, AllocatesNothingWhenAScheduleIsUsedAgain) {
  const auto schedule = std::make_shared<const Schedule>(
      allreduce_ring(0, 2, 8, {.chunk_elements = 1, .blocks_in_flight = 2}));
  scratch_.resize(schedule->scratch_elements);
  transport_.posted.reserve(64);
  const auto run = [&](MemoryBinding binding) {
    executor_.start(schedule, std::move(binding), 5, 78, std::span(kRanks).first(2));
    while (!executor_.done()) {
      executor_.advance();
      if (!transport_.posted.empty()) transport_.complete(0);
    }
  };
  run(bind());
  MemoryBinding binding = bind();
  const long before = allocations();
  run(std::move(binding));
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_FALSE(executor_.failed());
}

TEST(SegmentList, FindsPiecesAcrossSegments) {
  std::vector<std::byte> memory(100);
  SegmentList list;
  EXPECT_EQ(list.rest_at(0, 4).data, nullptr);
  list.append(memory.data(), 3);
  list.append(nullptr, 0);  // leaves no trace
  list.append(memory.data() + 50, 4);
  EXPECT_EQ(list.elements(), 7u);
  EXPECT_EQ(list.size(), 2u);
  EXPECT_EQ(list.rest_at(1, 4).data, memory.data() + 4);
  EXPECT_EQ(list.rest_at(1, 4).elements, 2u);
  EXPECT_EQ(list.rest_at(3, 4).data, memory.data() + 50);
  EXPECT_EQ(list.rest_at(7, 4).elements, 0u);

  std::vector<std::pair<std::ptrdiff_t, std::uint64_t>> pieces;
  list.for_each(2, 4, 4, [&](std::byte* data, std::uint64_t elements) {
    pieces.emplace_back(data - memory.data(), elements);
  });
  EXPECT_EQ(pieces, (std::vector<std::pair<std::ptrdiff_t, std::uint64_t>>{{8, 1}, {50, 3}}));
  list.for_each(7, 0, 4, [&](std::byte*, std::uint64_t) { ADD_FAILURE(); });
  list.clear();
  EXPECT_EQ(list.elements(), 0u);
}

}  // namespace
}  // namespace kolo::test
