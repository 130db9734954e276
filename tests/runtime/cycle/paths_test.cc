// Equal all-reduces on every path: messages alone, and windows of several sizes that the ranks of a
// host map. The results must be right on each path, with equal bits on all ranks.
#include "tests/support/averages.h"
#include "tests/support/sanitizers.h"
#include "tests/support/sized_worlds.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

namespace kolo::test::paths_test {
namespace {

/// Parameters: the size of the world and KOLO_SHARED_MEMORY.
class Paths : public SizedWorlds {};
INSTANTIATE_TEST_SUITE_P(SizesAndWindows, Paths,
                         testing::Combine(testing::Values(1, 2, 3, 5),
                                          testing::Values("0", "256K", "16M")));

// Sizes below and above KOLO_FUSION_MAX_TENSOR, and above every window's pipeline slots.
constexpr std::size_t kMiddle = kSanitized ? 150'001 : 300'001;
constexpr std::size_t kLarge = kSanitized ? 600'007 : 2'000'003;
constexpr std::size_t kCounts[] = {1, 0, 7, 1000, 64 << 10, 5, kMiddle, kLarge, 33};

TEST_P(Paths, LargeAndFusedTensorsAreRight) { check_averages(size(), kCounts, options()); }

TEST_P(Paths, LargeAndFusedTensorsAreRightOnSeveralThreadsEach) {
  LocalWorldOptions with_threads = options();
  with_threads.variables["KOLO_REDUCE_THREADS"] = "3";
  check_averages(size(), kCounts, with_threads);
}

// Each rank chooses whether its tensors lie in the arena; the sums are the same.
TEST_P(Paths, SharedAndPrivateMemoryMix) {
  enum class Place { kPrivate, kShared, kSharedInPlace, kSharedInputAlone };
  constexpr Place kPlaces[] = {Place::kPrivate, Place::kShared, Place::kSharedInPlace,
                               Place::kSharedInputAlone};
  std::mutex mutex;
  std::map<int, Values> of_first_rank;
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        const auto allocate = [&](std::size_t count, bool shared) {
          if (shared) return std::reinterpret_pointer_cast<float>(*runtime.allocate(count * 4));
          return std::shared_ptr<float>(new float[count], std::default_delete<float[]>());
        };
        int number = 0;
        for (const std::size_t count : {20'001UL, kSanitized ? 100'000UL : 300'000UL})
          for (int shift = 0; shift < 5; ++shift)
            for (const double prescale : {1.0, 2.0}) {
              // In the last round all ranks have all tensors in the arena, in place.
              const Place place = shift == 4 ? Place::kSharedInPlace
                                             : kPlaces[static_cast<std::size_t>(rank + shift) % 4];
              const auto input = allocate(count, place != Place::kPrivate);
              const auto output =
                  place == Place::kSharedInPlace ? input : allocate(count, place == Place::kShared);
              const Values values = random_values(count, rank, 3);
              std::copy(values.begin(), values.end(), input.get());
              Submission submission;
              submission.name = "t" + std::to_string(number);
              submission.signature.shape = {static_cast<std::int64_t>(count)};
              submission.signature.prescale = prescale;
              submission.input = reinterpret_cast<const std::byte*>(input.get());
              submission.output = reinterpret_cast<std::byte*>(output.get());
              const auto work = number % 2 == 0 ? submit(runtime, std::move(submission))
                                                : *runtime.submit_ordered(std::move(submission));
              ASSERT_TRUE(work->wait().ok());
              if (place != Place::kSharedInPlace) {
                ASSERT_EQ(std::memcmp(input.get(), values.data(), count * 4), 0) << "the input";
              }
              SCOPED_TRACE(testing::Message() << "round " << number);
              Values expected = random_sums(count, size(), 3);
              for (float& value : expected) value *= static_cast<float>(prescale);
              ASSERT_NO_FATAL_FAILURE(expect_near({output.get(), count}, expected));
              const std::lock_guard lock(mutex);
              const Values& first =
                  of_first_rank.emplace(number, Values(output.get(), output.get() + count))
                      .first->second;
              ASSERT_EQ(std::memcmp(first.data(), output.get(), count * 4), 0)
                  << "round " << number;
              ++number;
            }
      },
      options());
}

TEST_P(Paths, EveryAlgorithmThatIsAskedForIsRight) {
  for (const Algorithm algorithm : kAlgorithms) {
    LocalWorldOptions with_algorithm = options();
    with_algorithm.variables["KOLO_ALGORITHM"] = to_string(algorithm);
    run_local_world(
        size(),
        [&](int rank, Runtime& runtime) {
          for (const std::size_t count : {1UL, 1000UL, kSanitized ? 40'003UL : 100'003UL}) {
            Values values = random_values(count, rank, 7);
            ASSERT_TRUE(submit(runtime, allreduce_of(std::to_string(count), values))->wait().ok());
            SCOPED_TRACE(to_string(algorithm));
            ASSERT_NO_FATAL_FAILURE(expect_near(values, random_sums(count, size(), 7)));
          }
        },
        with_algorithm);
  }
}

TEST_P(Paths, ADeterministicSumDependsOnTheInputsAlone) {
  LocalWorldOptions deterministic = options();
  deterministic.variables["KOLO_DETERMINISTIC"] = "1";
  run_local_world(
      size(),
      [&](int rank, Runtime& runtime) {
        // First alone, then fused after others, which shift it.
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
      deterministic);
}

}  // namespace
}  // namespace kolo::test::paths_test
