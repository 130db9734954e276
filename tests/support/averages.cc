#include "tests/support/averages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>

namespace kolo::test {

Values random_values(std::size_t count, int rank, std::size_t tensor) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + static_cast<int>(tensor)));
  std::uniform_real_distribution<float> distribution(-1, 1);
  Values values(count);
  for (float& value : values) value = distribution(random);
  return values;
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
          Values expected(counts[i]);
          for (int r = 0; r < size; ++r) {
            const Values part = random_values(counts[i], r, i);
            for (std::size_t k = 0; k < expected.size(); ++k)
              expected[k] += 2 * part[k] / static_cast<float>(size);
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
      options);
}

}  // namespace kolo::test
