// The store of threads and the exchange over it.
#include "runtime/bootstrap/store_bootstrap.h"
#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/single_bootstrap.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace kolo::store_bootstrap_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(MemoryStore, AKeyIsSetOnce) {
  MemoryStore store;
  EXPECT_TRUE(store.set("a", "1").ok());
  const Status again = store.set("a", "2");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(again.error().message, HasSubstr("'a'"));
  EXPECT_EQ(*store.get("a", Deadline::never()), "1");
}

TEST(MemoryStore, WaitsForAKey) {
  MemoryStore store;
  std::thread getter([&] { EXPECT_EQ(*store.get("late", Deadline::never()), "here"); });
  std::thread bounded([&] { EXPECT_EQ(*store.get("late", Deadline::after(seconds(60))), "here"); });
  EXPECT_TRUE(store.set("other", "").ok());
  EXPECT_TRUE(store.set("late", "here").ok());
  getter.join();
  bounded.join();
}

TEST(MemoryStore, TheDeadlineEndsTheWait) {
  MemoryStore store;
  const auto value = store.get("never", Deadline::after(milliseconds(10)));
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(value.error().message, HasSubstr("'never'"));
}

TEST(StoreBootstrap, EveryRankGetsAllBlobsByRank) {
  constexpr int kSize = 9;
  MemoryStore store;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      StoreBootstrap bootstrap(store, rank, kSize);
      for (const char* phase : {"first", "second"}) {
        const auto blobs = bootstrap.exchange(phase, fmt::format("{} of {}", phase, rank),
                                              Deadline::after(seconds(60)));
        ASSERT_TRUE(blobs.ok()) << blobs.error().message;
        ASSERT_EQ(blobs->size(), std::size_t{kSize});
        for (int other = 0; other < kSize; ++other) {
          EXPECT_EQ((*blobs)[static_cast<std::size_t>(other)],
                    fmt::format("{} of {}", phase, other));
        }
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(StoreBootstrap, TheTimeoutNamesPhaseAndMissingRanks) {
  MemoryStore store;
  ASSERT_TRUE(store.set("connect/2", "").ok());
  StoreBootstrap bootstrap(store, 0, 4);
  const auto blobs = bootstrap.exchange("connect", "", Deadline::after(milliseconds(10)));
  ASSERT_FALSE(blobs.ok());
  EXPECT_EQ(blobs.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(blobs.error().message,
              AllOf(HasSubstr("rank 0"), HasSubstr("'connect'"), HasSubstr("2 of 4"),
                    HasSubstr(": 1, 3;"), HasSubstr("KOLO_INIT_TIMEOUT")));
}

TEST(StoreBootstrap, APhaseIsUsedOnce) {
  MemoryStore store;
  StoreBootstrap bootstrap(store, 0, 1);
  EXPECT_TRUE(bootstrap.exchange("a", "", Deadline::never()).ok());
  EXPECT_EQ(bootstrap.exchange("a", "", Deadline::never()).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(SingleBootstrap, ExchangesWithItself) {
  SingleBootstrap bootstrap;
  EXPECT_EQ(bootstrap.size(), 1);
  EXPECT_EQ(bootstrap.rank(), 0);
  EXPECT_THAT(*bootstrap.exchange("a", "blob", Deadline::never()), ElementsAre("blob"));
}

}  // namespace
}  // namespace kolo::store_bootstrap_test
