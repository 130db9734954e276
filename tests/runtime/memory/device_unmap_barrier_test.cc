// DeviceUnmapBarrier: which ranks wait for which when ranks that have mapped each other's devices
// end.
#include "runtime/memory/device_unmap_barrier.h"

#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/reserved_memory.h"
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

/// Opens a barrier on each rank, over windows of `bytes`.
void with_barriers(const std::vector<int>& pids, std::size_t bytes,
                   const std::function<void(int rank, DeviceUnmapBarrier&)>& body) {
  const auto size = static_cast<int>(pids.size());
  MemoryStore store;
  std::barrier all(size);
  run_transport_threads(size, [&](int rank, Transport& transport) {
    StoreBootstrap bootstrap(store, rank, size);
    const World world = world_of(rank, pids);
    HostWindow window(reserved_through(transport));
    const Status status = window.open(bootstrap, transport, world, {.slots = bytes, .arena = 0},
                                      Log("off"), Deadline::after(seconds(20)));
    ASSERT_TRUE(status.ok()) << status.error().message;
    DeviceUnmapBarrier barrier;
    barrier.open(window, world, Log("off"));
    all.arrive_and_wait();
    body(rank, barrier);
    all.arrive_and_wait();
  });
}

TEST(DeviceUnmapBarrier, EndsWhenAllOthersHaveUnmapped) {
  std::barrier asked(3);
  with_barriers({1, 1, 1}, 1 << 20, [&](int rank, DeviceUnmapBarrier& barrier) {
    if (rank == 0) {
      EXPECT_FALSE(barrier.part(kNotAtAll));
    }
    asked.arrive_and_wait();
    if (rank == 1) {
      EXPECT_FALSE(barrier.part(kNotAtAll));
    }
    asked.arrive_and_wait();
    EXPECT_TRUE(barrier.part(kLong));
  });
}

TEST(DeviceUnmapBarrier, WaitsForNoProcessThatHasEnded) {
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  ASSERT_GT(ended, 0);
  with_barriers({static_cast<int>(getpid()), static_cast<int>(ended)}, 1 << 20,
                [](int rank, DeviceUnmapBarrier& barrier) {
                  if (rank == 0) {
                    EXPECT_TRUE(barrier.part(kLong));
                  }
                });
  EXPECT_EQ(waitpid(ended, nullptr, 0), ended);
}

TEST(DeviceUnmapBarrier, AsksNobodyWithoutWindows) {
  with_barriers({1, 1}, 0, [](int rank, DeviceUnmapBarrier& barrier) {
    if (rank == 0) {
      EXPECT_TRUE(barrier.part(kNotAtAll));
    }
  });
}

}  // namespace
}  // namespace kolo::test
