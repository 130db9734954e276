#include "tests/support/averages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace kolo::test {

Values random_values(std::size_t count, int rank, std::size_t tensor) {
  // splitmix64 (Steele, Lea and Flood, OOPSLA 2014), whose state is one register: the engines of
  // <random> would take most of a test's time under ThreadSanitizer.
  std::uint64_t state = static_cast<std::uint64_t>(rank) * 1000 + tensor;
  Values values(count);
  for (float& value : values) {
    std::uint64_t bits = state += 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    value = static_cast<float>(static_cast<std::int32_t>(bits >> 32)) * 0x1p-31F;
  }
  return values;
}

Values random_sums(std::size_t count, int size, std::size_t tensor) {
  Values sums(count);
  for (int rank = 0; rank < size; ++rank) {
    const Values part = random_values(count, rank, tensor);
    for (std::size_t i = 0; i < count; ++i) sums[i] += part[i];
  }
  return sums;
}

void expect_near(std::span<const float> values, std::span<const float> expected) {
  ASSERT_EQ(values.size(), expected.size());
  const auto near = [](float a, float b) { return std::abs(a - b) <= 1e-5F; };
  const auto wrong = std::mismatch(values.begin(), values.end(), expected.begin(), near);
  ASSERT_EQ(wrong.first, values.end()) << "element " << wrong.first - values.begin() << " is "
                                       << *wrong.first << " instead of " << *wrong.second;
}

void check_averages(int size, std::span<const std::size_t> counts,
                    const LocalWorldOptions& options) {
  std::mutex mutex;
  std::map<std::size_t, Values> of_first_rank;
  run_local_world(
      size,
      [&](int rank, Runtime& runtime) {
        std::vector<Values> tensors;
        std::vector<std::shared_ptr<Work>> works;
        for (std::size_t i = 0; i < counts.size(); ++i)
          tensors.push_back(random_values(counts[i], rank, i));
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          Submission submission =
              allreduce_of("t" + std::to_string(i), tensors[i], ReduceOp::kAverage);
          submission.signature.prescale = 2;
          works.push_back(submit(runtime, std::move(submission)));
        }
        for (const auto& work : works) ASSERT_TRUE(work->wait().ok());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          SCOPED_TRACE(testing::Message() << "tensor " << i);
          Values expected = random_sums(counts[i], size, i);
          for (float& value : expected) value *= 2 / static_cast<float>(size);
          ASSERT_NO_FATAL_FAILURE(expect_near(tensors[i], expected));
          const std::lock_guard lock(mutex);
          const Values& first = of_first_rank.emplace(i, tensors[i]).first->second;
          ASSERT_TRUE(first.empty() ||
                      std::memcmp(first.data(), tensors[i].data(), first.size() * 4) == 0)
              << "tensor " << i << ": other bits on rank " << rank;
        }
      },
      options);
}

}  // namespace kolo::test
