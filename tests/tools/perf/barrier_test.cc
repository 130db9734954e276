// kolo-perf's barrier, under mpirun: no rank is let through early.
#include "tools/perf/barrier.h"

#include <kolo/kolo.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

namespace kolo::perf {
namespace {

TEST(Barrier, LetsNoRankThroughBeforeTheLastHasCome) {
  constexpr std::uint32_t kRounds = 300;
  init();
  {
    const auto opened = Barrier::open();
    ASSERT_TRUE(opened) << opened.error().message;
    Barrier& barrier = *opened.value();
    struct Line {
      alignas(128) std::atomic<std::uint32_t> round;
    };
    const auto memory = SharedLines::open(0, true, static_cast<std::size_t>(size()) * sizeof(Line));
    ASSERT_NE(memory, nullptr);
    auto* const lines = static_cast<Line*>(memory->data());
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      lines[rank()].round = round;
      barrier.wait();
      for (int other = 0; other < size(); ++other) {
        const std::uint32_t seen = lines[other].round;
        ASSERT_GE(seen, round) << "of rank " << other;
        ASSERT_LE(seen, round + 1) << "of rank " << other;
      }
    }
  }
  shutdown();
}

}  // namespace
}  // namespace kolo::perf
