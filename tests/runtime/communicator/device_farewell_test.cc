// DeviceFarewell: who waits for whom when ranks that have mapped each other's devices end.
#include "runtime/communicator/device_farewell.h"

#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/transport_threads.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <barrier>
#include <functional>
#include <utility>
#include <vector>

namespace kolo::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kNotAtAll{0};
constexpr milliseconds kLong = seconds(20);

World world_of(int rank, const std::vector<int>& pids) {
  std::vector<RankInfo> infos(pids.size());
  for (std::size_t i = 0; i < pids.size(); ++i) {
    infos[i].host_id = infos[i].hostname = "host";
    infos[i].pid = pids[i];
  }
  return World(rank, std::move(infos));
}

/// A farewell on each rank, all opened, over windows of so many bytes.
void with_farewells(const std::vector<int>& pids, std::size_t bytes,
                    const std::function<void(int rank, DeviceFarewell&)>& body) {
  const auto size = static_cast<int>(pids.size());
  MemoryStore store;
  std::barrier all(size);
  run_transport_threads(size, [&](int rank, Transport& transport) {
    StoreBootstrap bootstrap(store, rank, size);
    const World world = world_of(rank, pids);
    HostWindow window;
    const Status status = window.open(bootstrap, transport, world, {.slots = bytes, .arena = 0},
                                      Log("off"), Deadline::after(seconds(20)));
    ASSERT_TRUE(status.ok()) << status.error().message;
    DeviceFarewell farewell;
    farewell.open(window, world, Log("off"));
    all.arrive_and_wait();
    body(rank, farewell);
    all.arrive_and_wait();
  });
}

TEST(DeviceFarewell, EndsWhenAllOthersHaveUnmapped) {
  std::barrier asked(3);
  with_farewells({1, 1, 1}, 1 << 20, [&](int rank, DeviceFarewell& farewell) {
    if (rank == 0) {
      EXPECT_FALSE(farewell.part(kNotAtAll));
    }
    asked.arrive_and_wait();
    if (rank == 1) {
      EXPECT_FALSE(farewell.part(kNotAtAll));
    }
    asked.arrive_and_wait();
    EXPECT_TRUE(farewell.part(kLong));
  });
}

TEST(DeviceFarewell, WaitsForNoProcessThatHasEnded) {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_GT(ended, 0);
  with_farewells({static_cast<int>(getpid()), static_cast<int>(ended)}, 1 << 20,
                 [](int rank, DeviceFarewell& farewell) {
                   if (rank == 0) {
                     EXPECT_TRUE(farewell.part(kLong));
                   }
                 });
  EXPECT_EQ(waitpid(ended, nullptr, 0), ended);
}

TEST(DeviceFarewell, AsksNobodyWithoutWindows) {
  with_farewells({1, 1}, 0, [](int rank, DeviceFarewell& farewell) {
    if (rank == 0) {
      EXPECT_TRUE(farewell.part(kNotAtAll));
    }
  });
}

}  // namespace
}  // namespace kolo::test
