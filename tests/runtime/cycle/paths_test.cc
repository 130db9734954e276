// The same all-reduces by every path: messages alone, and windows of several sizes that the ranks
// of a host map. Results must be right on each, and equal in their bits on all ranks.
#include "tests/support/local_world.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <tuple>

namespace kolo::test {
namespace {

using Values = std::vector<float>;

/// By size of the world and KOLO_SHARED_MEMORY.
class Paths : public testing::TestWithParam<std::tuple<int, const char*>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  LocalWorldOptions options() const {
    LocalWorldOptions options;
    options.variables = {{"KOLO_SHARED_MEMORY", std::get<1>(GetParam())}};
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, Paths,
                         testing::Combine(testing::Values(1, 2, 3, 5),
                                          testing::Values("0", "256K", "16M")));

Values random_values(std::size_t count, int rank, std::size_t tensor) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + static_cast<int>(tensor)));
  std::uniform_real_distribution<float> distribution(-1, 1);
  Values values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

// Sizes on both sides of KOLO_FUSION_MAX_TENSOR, and beyond every window's lanes.
constexpr std::size_t kCounts[] = {1, 0, 7, 1000, 64 << 10, 5, 300'001, 2'000'003, 33};

TEST_P(Paths, LargeAndFusedTensorsAreRight) {
  std::mutex mutex;
  std::map<std::size_t, Values> of_first_rank;
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        std::vector<Values> tensors;
        std::vector<std::shared_ptr<Work>> works;
        for (std::size_t i = 0; i < std::size(kCounts); ++i)
          tensors.push_back(random_values(kCounts[i], rank, i));
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          Submission submission =
              allreduce_of("t" + std::to_string(i), tensors[i], ReduceOp::kAverage);
          submission.signature.prescale = 2;
          works.push_back(submit(runtime, std::move(submission)));
        }
        for (const auto& work : works) ASSERT_TRUE(work->wait().ok());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          Values expected(kCounts[i]);
          for (int r = 0; r < size(); ++r) {
            const Values part = random_values(kCounts[i], r, i);
            for (std::size_t k = 0; k < expected.size(); ++k)
              expected[k] += 2 * part[k] / static_cast<float>(size());
          }
          for (std::size_t k = 0; k < expected.size(); ++k)
            ASSERT_NEAR(tensors[i][k], expected[k], 1e-5) << "tensor " << i << ", element " << k;
          const std::lock_guard lock(mutex);
          const Values& first = of_first_rank.emplace(i, tensors[i]).first->second;
          ASSERT_TRUE(first.empty() ||
                      std::memcmp(first.data(), tensors[i].data(), first.size() * 4) == 0)
              << "tensor " << i << ": other bits on rank " << rank;
        }
      },
      options());
}

TEST_P(Paths, AWindowsSumDependsOnTheInputsAlone) {
  if (std::string_view(std::get<1>(GetParam())) == "0") return;  // a ring's order varies
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        // Alone, then fused behind others that shift it.
        constexpr std::size_t kCount = 5003;
        Values alone = random_values(kCount, rank, 1);
        ASSERT_TRUE(submit(runtime, allreduce_of("alone", alone))->wait().ok());
        Values fused = random_values(kCount, rank, 1);
        Values before = random_values(777, rank, 2);
        const auto first = submit(runtime, allreduce_of("before", before));
        const auto second = submit(runtime, allreduce_of("fused", fused));
        ASSERT_TRUE(first->wait().ok());
        ASSERT_TRUE(second->wait().ok());
        EXPECT_EQ(std::memcmp(alone.data(), fused.data(), kCount * sizeof(float)), 0);
      },
      options());
}

}  // namespace
}  // namespace kolo::test
