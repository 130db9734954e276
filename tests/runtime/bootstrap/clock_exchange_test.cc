// Clocks that are apart by a known offset, and the result of the exchange.
#include "runtime/bootstrap/clock_exchange.h"

#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

namespace kolo::clock_exchange_test {
namespace {

constexpr int kSize = 3;
// The second clock runs 5 s ahead of the first, the third 7 s behind it.
constexpr std::array<std::int64_t, kSize> kAhead = {0, 5'000'000'000, -7'000'000'000};

std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::array<ClockOffset, kSize> compare_clocks(bool same_clock) {
  MemoryStore store;
  std::array<ClockOffset, kSize> clocks{};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      StoreBootstrap bootstrap(store, rank, kSize);
      const auto clock =
          exchange_clock(bootstrap, same_clock, Deadline::after(std::chrono::seconds(30)),
                         [=] { return steady_ns() + kAhead[index]; });
      ASSERT_TRUE(clock.ok()) << clock.error().message;
      clocks[index] = *clock;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return clocks;
}

TEST(ClockExchange, BoundsTheOffset) {
  const std::int64_t before = steady_ns();
  const auto clocks = compare_clocks(false);
  const std::int64_t after = steady_ns();
  for (std::size_t rank = 0; rank < kSize; ++rank) {
    const ClockOffset& clock = clocks[rank];
    EXPECT_LE(std::abs(clock.offset - kAhead[rank]), clock.error) << rank;
    EXPECT_LE(clock.error, after - before) << rank;
    // One moment, read on this rank's clock.
    EXPECT_EQ(clock.zero - clock.offset, clocks[0].zero) << rank;
  }
  EXPECT_EQ(clocks[0].error, 0);
}

TEST(ClockExchange, OneClockNeedsNoEstimate) {
  for (const ClockOffset& clock : compare_clocks(true)) {
    EXPECT_EQ(clock.offset, 0);
    EXPECT_EQ(clock.error, 0);
  }
}

}  // namespace
}  // namespace kolo::clock_exchange_test
