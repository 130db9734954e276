// The collectives' schedules on the real executor: 1 to 9 ranks as threads over the loopback
// transport, every type, odd counts, scattered and shared memory, against sums made one element at
// a time.
#include "runtime/planning/chooser.h"
#include "tests/support/peer_schedules.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scattered_tensor.h"
#include "tests/support/schedule_runner.h"
#include "tests/support/transport_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

namespace kolo::test {
namespace {

constexpr DataType kAllTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat64,
                                  DataType::kInt64};
constexpr std::span<const DataType> kTypes = std::span(kAllTypes).first(kSanitized ? 2 : 4);

enum class Layout { kContiguous, kSameMemory, kScattered, kScatteredSameMemory };
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kSameMemory, Layout::kScattered,
                               Layout::kScatteredSameMemory};

bool is_scattered(Layout layout) {
  return layout == Layout::kScattered || layout == Layout::kScatteredSameMemory;
}
bool is_same_memory(Layout layout) {
  return layout == Layout::kSameMemory || layout == Layout::kScatteredSameMemory;
}

/// Small even numbers: sums of nine, halved twice, are exact even in bfloat16.
double value_of(int rank, std::uint64_t i) {
  return static_cast<double>((static_cast<std::uint64_t>(rank) * 5 + i * 3) % 5) * 2 - 4;
}

// Algorithms that send messages; allreduce_mapped has its own tests below.
constexpr Algorithm kSending[] = {Algorithm::kRing, Algorithm::kBidirectionalRing,
                                  Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling,
                                  Algorithm::kDoubleTree};

void check_allreduce(ScheduleRunner& self, Algorithm algorithm, DataType type, Layout layout,
                     std::uint64_t count, Scale prescale, Scale postscale) {
  SCOPED_TRACE(::testing::Message() << "rank " << self.rank() << " of " << self.size() << ", "
                                    << to_string(algorithm) << ", " << to_string(type) << ", "
                                    << count << " elements, layout " << static_cast<int>(layout));
  const int pieces = is_scattered(layout) ? 5 : 1;
  const auto seed = static_cast<unsigned>(self.rank() + 1);
  Tensor input(type, count, pieces, seed), other(type, count, pieces, seed + 100);
  Tensor& output = is_same_memory(layout) ? input : other;
  for (std::uint64_t i = 0; i < count; ++i) other.set(i, -77);
  for (std::uint64_t i = 0; i < count; ++i) input.set(i, value_of(self.rank(), i));
  const std::size_t pattern = output.bytes_of_pattern();

  MemoryBinding binding{.type = type, .prescale = prescale, .postscale = postscale};
  binding.input = input.segments();
  binding.output = output.segments();
  const ScheduleRequest request{
      .rank = self.rank(),
      .size = self.size(),
      .count = count,
      .chunk_elements = 32,
      .blocks_in_flight = 2,
      .placement = is_scattered(layout) ? Placement::kPacked : Placement::kInPlace,
      .algorithm = algorithm};
  const Status status = self.run(std::make_shared<const Schedule>(make_schedule(request)), binding);
  ASSERT_TRUE(status.ok()) << status.error().message;

  for (std::uint64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int r = 0; r < self.size(); ++r) sum += value_of(r, i) * prescale.factor;
    double expected = sum * postscale.factor / static_cast<double>(postscale.divisor);
    if (type == DataType::kInt64) expected = std::trunc(expected);
    // One rounding, in a division by three or seven; everything else is exact.
    ASSERT_NEAR(output.get(i), expected,
                std::abs(expected) * (type == DataType::kBFloat16 ? 0.004 : 1e-6))
        << "element " << i;
    if (!is_same_memory(layout)) {
      ASSERT_EQ(input.get(i), value_of(self.rank(), i));
    }
  }
  EXPECT_EQ(output.bytes_of_pattern(), pattern) << "wrote beside the tensor";
}

class Collectives : public ::testing::TestWithParam<int> {};

TEST_P(Collectives, AllreduceIsRightForEveryTypeCountAndLayout) {
  const int size = GetParam();
  run_transport_threads(size, [size](int rank, Transport& transport) {
    ScheduleRunner self(rank, size, transport);
    for (const Algorithm algorithm : kSending)
      for (const DataType type : kTypes)
        for (const Layout layout : kLayouts)
          for (const int count : {0, 1, size, 31, 1003}) {
            if (kSanitized && (count == 1 || count == 31) && count != size) continue;
            const auto n = static_cast<std::uint64_t>(count);
            check_allreduce(self, algorithm, type, layout, n, {}, {});
            check_allreduce(self, algorithm, type, layout, n, {}, {.divisor = size});
            check_allreduce(self, algorithm, type, layout, n, {.factor = 0.5}, {.factor = 0.5});
          }
  });
}

TEST_P(Collectives, InPlaceTakesAScatteredInput) {
  const int size = GetParam();
  run_transport_threads(size, [size](int rank, Transport& transport) {
    ScheduleRunner self(rank, size, transport);
    Tensor input(DataType::kFloat32, 500, 7, 3), output(DataType::kFloat32, 500, 1, 4);
    for (std::uint64_t i = 0; i < 500; ++i) input.set(i, value_of(rank, i));
    MemoryBinding binding;
    binding.input = input.segments();
    binding.output = output.segments();
    const ScheduleRequest request{
        .rank = rank, .size = size, .count = 500, .chunk_elements = 50, .blocks_in_flight = 3};
    const Status status =
        self.run(std::make_shared<const Schedule>(make_schedule(request)), std::move(binding));
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (std::uint64_t i = 0; i < 500; ++i) {
      double sum = 0;
      for (int r = 0; r < size; ++r) sum += value_of(r, i);
      ASSERT_EQ(output.get(i), sum);
    }
  });
}

/// A sum of random numbers on every rank, each in its own vector; the result by rank.
std::vector<std::vector<float>> random_sums(int size, Algorithm algorithm, std::uint64_t count) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
  run_transport_threads(size, [&](int rank, Transport& transport) {
    ScheduleRunner self(rank, size, transport);
    std::mt19937 generator(static_cast<unsigned>(rank));
    std::vector<float>& values = results[static_cast<std::size_t>(rank)];
    for (std::uint64_t i = 0; i < count; ++i)
      values.push_back(std::uniform_real_distribution<float>(-1, 1)(generator));
    MemoryBinding binding{.prescale = {.factor = 0.3}, .postscale = {.divisor = size}};
    binding.input.append(reinterpret_cast<std::byte*>(values.data()), count);
    binding.output = binding.input;
    const ScheduleRequest request{.rank = rank,
                                  .size = size,
                                  .count = count,
                                  .chunk_elements = 4096,
                                  .blocks_in_flight = 4,
                                  .algorithm = algorithm};
    const Status status =
        self.run(std::make_shared<const Schedule>(make_schedule(request)), std::move(binding));
    ASSERT_TRUE(status.ok()) << status.error().message;
  });
  return results;
}

TEST_P(Collectives, LargeMessagesGiveEqualBitsOnAllRanks) {
  const int size = GetParam();
  constexpr std::uint64_t kCount = 100'003;
  for (const Algorithm algorithm : kSending) {
    SCOPED_TRACE(to_string(algorithm));
    const auto results = random_sums(size, algorithm, kCount);
    for (const auto& result : results)
      EXPECT_EQ(std::memcmp(result.data(), results.front().data(), kCount * sizeof(float)), 0);

    double expected = 0;  // for element 0
    for (int rank = 0; rank < size; ++rank) {
      std::mt19937 generator(static_cast<unsigned>(rank));
      expected += std::uniform_real_distribution<float>(-1, 1)(generator);
    }
    EXPECT_NEAR(results.front().front(), expected * 0.3 / size, 1e-6);
  }
}

TEST_P(Collectives, DoublingGivesTheBitsOfHalving) {
  constexpr std::uint64_t kCount = 10'007;
  const auto doubled = random_sums(GetParam(), Algorithm::kRecursiveDoubling, kCount);
  const auto halved = random_sums(GetParam(), Algorithm::kHalvingDoubling, kCount);
  EXPECT_EQ(doubled.front(), halved.front());
}

TEST_P(Collectives, BroadcastReachesAllFromEveryRoot) {
  const int size = GetParam();
  run_transport_threads(size, [size](int rank, Transport& transport) {
    ScheduleRunner self(rank, size, transport);
    for (int root = 0; root < size; ++root)
      for (const DataType type : kTypes)
        for (const bool same_memory : {false, true})
          for (const auto& [count, chunk] : {std::pair(0u, 100u), std::pair(1u, 100u),
                                             std::pair(1003u, 100u), std::pair(1003u, 1u << 20)}) {
            Tensor input(type, count, 1, 0), other(type, count, 1, 0);
            Tensor& output = same_memory ? input : other;
            for (std::uint64_t i = 0; i < count; ++i) other.set(i, -77);
            for (std::uint64_t i = 0; i < count; ++i) input.set(i, value_of(rank, i));
            MemoryBinding binding{.type = type};
            if (rank == root) binding.input = input.segments();
            binding.output = output.segments();
            const ScheduleRequest request{.kind = OperationKind::kBroadcast,
                                          .rank = rank,
                                          .size = size,
                                          .root = root,
                                          .count = count,
                                          .chunk_elements = chunk,
                                          .blocks_in_flight = 3};
            const Status status = self.run(std::make_shared<const Schedule>(make_schedule(request)),
                                           std::move(binding));
            ASSERT_TRUE(status.ok()) << status.error().message;
            for (std::uint64_t i = 0; i < count; ++i)
              ASSERT_EQ(output.get(i), value_of(root, i)) << "rank " << rank << ", root " << root;
          }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Collectives, ::testing::Range(1, 10));

TEST(PeerMappedMemory, OnePassSumThroughMappedScratch) {
  constexpr int kSize = 3;
  constexpr std::uint64_t kCount = 3 * 5000;
  std::vector<std::vector<float>> scratch(kSize, std::vector<float>(kCount));
  run_transport_threads(kSize, [&](int rank, Transport& transport) {
    ScheduleRunner self(rank, kSize, transport);
    Tensor tensor(DataType::kFloat32, kCount, 6, static_cast<unsigned>(rank));
    for (std::uint64_t i = 0; i < kCount; ++i) tensor.set(i, value_of(rank, i));
    MemoryBinding binding{.prescale = {.factor = 2}, .postscale = {.factor = 0.25}};
    binding.input = tensor.segments();
    binding.output = tensor.segments();
    for (auto& peer : scratch)
      binding.peers.push_back({.scratch = reinterpret_cast<std::byte*>(peer.data())});
    binding.scratch = binding.peers[static_cast<std::size_t>(rank)].scratch;
    const auto schedule = std::make_shared<const Schedule>(one_pass_sum_of_three(rank, kCount));
    const Status status = self.run(schedule, std::move(binding));
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (std::uint64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(tensor.get(i), (value_of(0, i) + value_of(1, i) + value_of(2, i)) / 2);
  });
}

TEST(TransferFailure, DifferentSchedulesFailWithRankAndStepInsteadOfHanging) {
  std::atomic<int> told = 0;
  run_transport_threads(2, [&](int rank, Transport& transport) {
    ScheduleRunner self(rank, 2, transport);
    std::vector<float> values(1000, 1.0F);
    MemoryBinding binding;
    binding.input.append(reinterpret_cast<std::byte*>(values.data()), values.size());
    binding.output = binding.input;
    const ScheduleRequest request{.rank = rank, .size = 2, .count = rank == 0 ? 1000u : 900u};
    const Status status =
        self.run(std::make_shared<const Schedule>(make_schedule(request)), std::move(binding));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kMismatch);
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("allreduce_ring: step"));
    EXPECT_THAT(status.error().message,
                ::testing::HasSubstr("receive from rank " + std::to_string(1 - rank)));
    ++told;
  });
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace kolo::test
