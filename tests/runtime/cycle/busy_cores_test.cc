// Other programs use the ranks' cores: a rank that waits gives its core away in few calls. Each
// time costs it a time slice.
#include "tests/support/local_world.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

namespace kolo::test {
namespace {

constexpr int kRanks = 2;
constexpr int kCalls = 400;
constexpr std::int64_t kCount = (64 << 10) / sizeof(float);

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

void bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
}

/// How often this thread has left its core.
long switches() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

TEST(BusyCores, ARankThatWaitsKeepsItsCoreInMostCalls) {
  const std::vector<int> cores = usable_cores();
  if (cores.size() < kRanks) GTEST_SKIP() << "each rank needs a core";
  std::atomic<bool> over = false;
  std::vector<std::thread> others;
  for (int rank = 0; rank < kRanks; ++rank)
    others.emplace_back([&, core = cores[static_cast<std::size_t>(rank)]] {
      bind_to(core);
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  std::vector<long> left(kRanks);
  run_local_world(kRanks, [&](int rank, Runtime& runtime) {
    bind_to(cores[static_cast<std::size_t>(rank)]);
    std::vector<float> values(kCount);
    auto* const bytes = reinterpret_cast<std::byte*>(values.data());
    const long before = switches();
    for (int i = 0; i < kCalls; ++i)
      ASSERT_TRUE(
          runtime.allreduce_ordered(bytes, bytes, kCount, DataType::kFloat32, ReduceOp::kSum).ok());
    left[static_cast<std::size_t>(rank)] = switches() - before;
  });
  over = true;
  for (std::thread& other : others) other.join();
  for (const long times : left) EXPECT_LT(times, kCalls / 2);
}

}  // namespace
}  // namespace kolo::test
