// The collectives besides allreduce and broadcast on the real executor: 1 to 9 ranks as threads
// over the loopback transport, uneven parts, in place and out of place, against the expected value
// of each element.
#include "runtime/planning/chooser.h"
#include "tests/support/scattered_tensor.h"
#include "tests/support/schedule_runner.h"
#include "tests/support/transport_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

namespace kolo::test::data_movement_test {
namespace {

using Counts = std::vector<std::uint64_t>;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kInt64};

/// Different for each rank and element, and exact in every type here.
double value_of(int rank, std::uint64_t i) { return rank * 10'000 + static_cast<double>(i); }

std::vector<Counts> parts_for(int size) {
  const auto ranks = static_cast<std::size_t>(size);
  Counts holes, only_last(ranks, 0);
  for (std::size_t r = 0; r < ranks; ++r) holes.push_back(r % 3 == 1 ? 0 : r * 37 + 5);
  only_last.back() = 1003;
  return {Counts(ranks, 0), Counts(ranks, 1), Counts(ranks, 129), holes, only_last};
}

std::uint64_t sum(const Counts& counts, int first, int last) {
  return std::accumulate(counts.begin() + first, counts.begin() + last, std::uint64_t{0});
}

ScheduleRequest request_of(const ScheduleRunner& self, OperationKind collective) {
  return {.kind = collective,
          .rank = self.rank(),
          .size = self.size(),
          .chunk_elements = 50,
          .blocks_in_flight = 3};
}

/// A contiguous tensor with value_of(rank, 0 …); −77 everywhere if there is no `rank`.
Tensor tensor_of(DataType type, std::uint64_t count, std::optional<int> rank, int pieces = 1) {
  Tensor tensor(type, count, pieces, 1);
  for (std::uint64_t i = 0; i < count; ++i) tensor.set(i, rank ? value_of(*rank, i) : -77);
  return tensor;
}

SegmentList slice(const Tensor& tensor, DataType type, std::uint64_t begin, std::uint64_t count) {
  SegmentList segments;
  if (count > 0) segments.append(tensor.segments().rest_at(begin, size_of(type)).data, count);
  return segments;
}

void run(ScheduleRunner& self, const ScheduleRequest& request, MemoryBinding binding) {
  const Status status =
      self.run(std::make_shared<const Schedule>(make_schedule(request)), std::move(binding));
  ASSERT_TRUE(status.ok()) << status.error().message;
}

/// Checks that the elements of a rank's input from `position` on are at `begin`.
void expect_part(const Tensor& tensor, std::uint64_t begin, std::uint64_t count, int from,
                 std::uint64_t position) {
  for (std::uint64_t i = 0; i < count; ++i)
    ASSERT_EQ(tensor.get(begin + i), value_of(from, position + i))
        << "element " << begin + i << ", from rank " << from;
}

/// `pattern`: result of bytes_of_pattern() before the tensor had values.
void expect_nothing_beside(Tensor& tensor, std::uint64_t count, std::size_t pattern) {
  for (std::uint64_t i = 0; i < count; ++i) tensor.set(i, -77);  // values may look like the pattern
  EXPECT_EQ(tensor.bytes_of_pattern(), pattern) << "wrote beside the tensor";
}

class DataMovement : public ::testing::TestWithParam<int> {
 protected:
  template <class Body>
  void on_every_rank(Body&& body) {
    const int size = GetParam();
    run_transport_threads(size, [&](int rank, Transport& transport) {
      ScheduleRunner self(rank, size, transport);
      for (const DataType type : kTypes) {
        SCOPED_TRACE(::testing::Message()
                     << "rank " << rank << " of " << size << ", " << to_string(type));
        body(self, type);
      }
    });
  }
};

TEST_P(DataMovement, AllgatherPutsAllPartsInOrder) {
  on_every_rank([](ScheduleRunner& self, DataType type) {
    for (const Counts& counts : parts_for(self.size()))
      for (const auto& [in_place, in_few_messages] :
           {std::pair(false, false), std::pair(true, false), std::pair(false, true),
            std::pair(true, true)}) {
        const std::uint64_t own = counts[static_cast<std::size_t>(self.rank())];
        const Tensor input = tensor_of(type, own, self.rank());
        Tensor output = tensor_of(type, sum(counts, 0, self.size()), std::nullopt);
        const std::size_t pattern = output.bytes_of_pattern();
        MemoryBinding binding{.type = type, .output = output.segments()};
        if (in_place) {
          const std::uint64_t begin = sum(counts, 0, self.rank());
          for (std::uint64_t i = 0; i < own; ++i) output.set(begin + i, value_of(self.rank(), i));
        } else {
          binding.input = input.segments();
        }
        ScheduleRequest request = request_of(self, OperationKind::kAllgather);
        request.counts = counts;
        request.in_place = in_place;
        if (in_few_messages) request.chunk_elements = 1 << 20;
        run(self, request, std::move(binding));
        for (int from = 0; from < self.size(); ++from)
          expect_part(output, sum(counts, 0, from), counts[static_cast<std::size_t>(from)], from,
                      0);
        expect_nothing_beside(output, sum(counts, 0, self.size()), pattern);
      }
  });
}

TEST_P(DataMovement, AlltoallExchangesAllParts) {
  on_every_rank([](ScheduleRunner& self, DataType type) {
    const auto ranks = static_cast<std::size_t>(self.size());
    for (const std::uint64_t scale : {0U, 1U, 67U}) {
      ScheduleRequest request = request_of(self, OperationKind::kAlltoall);
      for (std::size_t i = 0; i < ranks; ++i)
        for (std::size_t j = 0; j < ranks; ++j)
          request.counts.push_back((i * 3 + j * 5) % 4 * scale);
      const Counts& matrix = request.counts;
      const int first = self.rank() * self.size();
      std::uint64_t received = 0;
      for (int from = 0; from < self.size(); ++from)
        received += matrix[static_cast<std::size_t>(from * self.size() + self.rank())];
      const Tensor input = tensor_of(type, sum(matrix, first, first + self.size()), self.rank());
      Tensor output = tensor_of(type, received, std::nullopt);
      const std::size_t pattern = output.bytes_of_pattern();
      run(self, request, {.type = type, .input = input.segments(), .output = output.segments()});
      std::uint64_t begin = 0;
      for (int from = 0; from < self.size(); ++from) {
        const int row = from * self.size();
        const std::uint64_t count = matrix[static_cast<std::size_t>(row + self.rank())];
        expect_part(output, begin, count, from, sum(matrix, row, row + self.rank()));
        begin += count;
      }
      expect_nothing_beside(output, received, pattern);
    }
  });
}

TEST_P(DataMovement, ReduceScatterSumsAndScalesEachPart) {
  enum class Memory { kSeparate, kScatteredInput, kInPlace };
  on_every_rank([](ScheduleRunner& self, DataType type) {
    for (const Counts& counts : parts_for(self.size()))
      for (const Memory memory : {Memory::kSeparate, Memory::kScatteredInput, Memory::kInPlace})
        for (const auto& [scaled, in_few_messages] :
             {std::pair(false, false), std::pair(true, false), std::pair(false, true),
              std::pair(true, true)}) {
          const std::uint64_t begin = sum(counts, 0, self.rank());
          const std::uint64_t own = counts[static_cast<std::size_t>(self.rank())];
          const bool in_place = memory == Memory::kInPlace;
          Tensor input = tensor_of(type, sum(counts, 0, self.size()), self.rank(),
                                   memory == Memory::kScatteredInput ? 5 : 1);
          const Tensor other = tensor_of(type, own, std::nullopt);
          MemoryBinding binding{.type = type};
          if (scaled) binding.prescale.factor = 2;
          if (scaled) binding.postscale.divisor = self.size();
          binding.input = input.segments();
          binding.output = in_place ? slice(input, type, begin, own) : other.segments();
          ScheduleRequest request = request_of(self, OperationKind::kReduceScatter);
          request.counts = counts;
          if (in_few_messages) request.chunk_elements = 1 << 20;
          run(self, request, std::move(binding));
          for (std::uint64_t i = 0; i < own; ++i) {
            double expected = 0;
            for (int r = 0; r < self.size(); ++r) expected += value_of(r, begin + i);
            if (scaled) expected = expected * 2 / self.size();
            if (type == DataType::kInt64) expected = std::trunc(expected);
            ASSERT_NEAR(in_place ? input.get(begin + i) : other.get(i), expected, expected * 1e-6)
                << "element " << i;
          }
          if (in_place) continue;
          expect_part(input, 0, sum(counts, 0, self.size()), self.rank(), 0);
        }
  });
}

TEST_P(DataMovement, GatherBringsAllPartsToEveryRoot) {
  on_every_rank([](ScheduleRunner& self, DataType type) {
    for (int root = 0; root < self.size(); ++root)
      for (const Counts& counts : parts_for(self.size()))
        for (const bool in_place : {false, true}) {
          const bool is_root = self.rank() == root;
          const std::uint64_t own = counts[static_cast<std::size_t>(self.rank())];
          const Tensor input = tensor_of(type, own, self.rank());
          Tensor output = tensor_of(type, is_root ? sum(counts, 0, self.size()) : 0, std::nullopt);
          MemoryBinding binding{.type = type, .output = output.segments()};
          if (is_root && in_place) {
            const std::uint64_t begin = sum(counts, 0, root);
            for (std::uint64_t i = 0; i < own; ++i) output.set(begin + i, value_of(root, i));
          } else {
            binding.input = input.segments();
          }
          ScheduleRequest request = request_of(self, OperationKind::kGather);
          request.root = root;
          request.counts = counts;
          request.in_place = in_place;
          run(self, request, std::move(binding));
          if (!is_root) continue;
          for (int from = 0; from < self.size(); ++from)
            expect_part(output, sum(counts, 0, from), counts[static_cast<std::size_t>(from)], from,
                        0);
        }
  });
}

TEST_P(DataMovement, ScatterBringsEachRankItsPartFromEveryRoot) {
  on_every_rank([](ScheduleRunner& self, DataType type) {
    for (int root = 0; root < self.size(); ++root)
      for (const Counts& counts : parts_for(self.size()))
        for (const bool in_place : {false, true}) {
          const bool is_root = self.rank() == root;
          const std::uint64_t own = counts[static_cast<std::size_t>(self.rank())];
          const Tensor input =
              tensor_of(type, is_root ? sum(counts, 0, self.size()) : 0, self.rank());
          const Tensor output = tensor_of(type, own, std::nullopt);
          MemoryBinding binding{.type = type, .input = input.segments()};
          if (!is_root || !in_place) binding.output = output.segments();
          ScheduleRequest request = request_of(self, OperationKind::kScatter);
          request.root = root;
          request.counts = counts;
          request.in_place = in_place;
          run(self, request, std::move(binding));
          if (is_root && in_place) continue;
          expect_part(output, 0, own, root, sum(counts, 0, self.rank()));
        }
  });
}

TEST_P(DataMovement, PointToPointReachesTheOneAlone) {
  on_every_rank([](ScheduleRunner& self, DataType type) {
    for (int from = 0; from < self.size(); ++from)
      for (int to = 0; to < self.size(); ++to)
        for (const std::uint64_t count : {0U, 1U, 173U}) {
          const Tensor input = tensor_of(type, count, self.rank());
          const Tensor output = tensor_of(type, count, std::nullopt);
          MemoryBinding binding{.type = type};
          if (self.rank() == from) binding.input = input.segments();
          if (self.rank() == to) binding.output = output.segments();
          ScheduleRequest request = request_of(self, OperationKind::kSend);
          request.root = from;
          request.peer = to;
          request.count = count;
          run(self, request, std::move(binding));
          if (self.rank() == to) {
            expect_part(output, 0, count, from, 0);
          } else if (count > 0) {
            EXPECT_EQ(output.get(0), -77);
          }
        }
  });
}

TEST_P(DataMovement, ABarrierHoldsAllUntilTheLastHasCome) {
  constexpr int kRounds = 50;
  std::atomic<int> come = 0;
  run_transport_threads(GetParam(), [&](int rank, Transport& transport) {
    ScheduleRunner self(rank, GetParam(), transport);
    for (int round = 1; round <= kRounds; ++round) {
      ++come;
      run(self, request_of(self, OperationKind::kBarrier), {});
      EXPECT_GE(come, round * GetParam());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, DataMovement, ::testing::Range(1, 10));

}  // namespace
}  // namespace kolo::test::data_movement_test
