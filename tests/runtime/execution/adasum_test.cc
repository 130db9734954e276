// Adasum's schedule run for real: 1 to 9 ranks as threads over the loopback transport.
#include "runtime/planning/chooser.h"
#include "tests/support/schedule_runner.h"
#include "tests/support/transport_threads.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <random>
#include <utility>

namespace kolo::test {
namespace {

using Vector = std::vector<float>;

Vector gradient_of(int rank, std::uint64_t count) {
  std::mt19937 generator(static_cast<unsigned>(rank));
  Vector values(count);
  for (float& value : values) value = std::uniform_real_distribution<float>(-1, 1)(generator);
  return values;
}

Vector sum(const Vector& a, const Vector& b) {
  Vector result(a);
  for (std::size_t i = 0; i < a.size(); ++i) result[i] += b[i];
  return result;
}

/// The tree in the comment of allreduce_recursive_doubling.cc.
template <class Combine>
Vector combine_all(std::vector<Vector> vectors, Combine&& combine) {
  const std::size_t doubling = std::bit_floor(vectors.size());
  for (std::size_t r = doubling; r < vectors.size(); ++r)
    vectors[r - doubling] = combine(vectors[r - doubling], vectors[r]);
  vectors.resize(doubling);
  for (std::size_t distance = doubling / 2; distance > 0; distance /= 2)
    for (std::size_t i = 0; i < distance; ++i)
      vectors[i] = combine(vectors[i], vectors[i + distance]);
  return vectors.front();
}

class Adasum : public ::testing::TestWithParam<int> {};

TEST_P(Adasum, CombinesWholeVectorsInTheSameTreeOnEveryRank) {
  const int size = GetParam();
  for (const std::uint64_t count : {0U, 1U, 1003U}) {
    std::vector<Vector> scaled;
    for (int r = 0; r < size; ++r) {
      scaled.push_back(gradient_of(r, count));
      for (float& value : scaled.back()) value *= 0.5F;
    }
    Vector expected = combine_all(scaled, sum);
    for (float& value : expected) value *= 4;
    for (const bool same_memory : {false, true})
      run_transport_threads(size, [&](int rank, Transport& transport) {
        ScheduleRunner self(rank, size, transport);
        Vector input = gradient_of(rank, count), other(count, -77);
        Vector& output = same_memory ? input : other;
        MemoryBinding binding{.prescale = {.factor = 0.5}, .postscale = {.factor = 4}};
        binding.input.append(reinterpret_cast<std::byte*>(input.data()), count);
        binding.output.append(reinterpret_cast<std::byte*>(output.data()), count);
        const ScheduleRequest request{
            .rank = rank, .size = size, .count = count, .algorithm = Algorithm::kRecursiveDoubling};
        const Status status =
            self.run(std::make_shared<const Schedule>(make_schedule(request)), std::move(binding));
        ASSERT_TRUE(status.ok()) << status.error().message;
        EXPECT_EQ(output, expected) << "rank " << rank << " of " << size;
      });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Adasum, ::testing::Range(1, 10));

}  // namespace
}  // namespace kolo::test
