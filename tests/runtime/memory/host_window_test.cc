// HostWindow: which ranks map which windows, little memory, and several hosts.
#include "runtime/memory/host_window.h"

#include "runtime/bootstrap/memory_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "tests/support/reserved_memory.h"
#include "tests/support/transport_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>

namespace kolo::test {
namespace {

constexpr std::size_t kBytes = 1 << 20;
constexpr std::size_t kArena = 8 << 20;

World world_of(int rank, int size, int hosts) {
  std::vector<RankInfo> infos(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    auto& info = infos[static_cast<std::size_t>(r)];
    info.host_id = info.hostname = "host" + std::to_string(r % hosts);
  }
  return World(rank, std::move(infos));
}

/// Opens windows on all ranks, each asking for bytes_of(rank), and calls body on each rank.
void with_windows(int size, int hosts, const std::function<std::size_t(int)>& bytes_of,
                  const std::function<void(const Communicator&, HostWindow&)>& body) {
  MemoryStore store;
  std::barrier all_done(size);
  run_transport_threads(size, [&](int rank, Transport& transport) {
    StoreBootstrap bootstrap(store, rank, size);
    const Communicator communicator(0, world_of(rank, size, hosts));
    HostWindow window(reserved_through(transport));
    const Status status = window.open(bootstrap, transport, communicator.world(),
                                      {.slots = bytes_of(rank), .arena = kArena}, Log("off"),
                                      Deadline::after(std::chrono::seconds(20)));
    ASSERT_TRUE(status.ok()) << status.error().message;
    body(communicator, window);
    all_done.arrive_and_wait();
  });
}

TEST(HostWindow, EveryRankOfAHostSeesTheOthersMemory) {
  std::barrier written(3);
  with_windows(
      3, 1, [](int) { return kBytes; },
      [&](const Communicator& communicator, HostWindow& window) {
        EXPECT_TRUE(window.covers(communicator, 0));
        EXPECT_EQ(window.slot_bytes(), kBytes / HostWindow::kSlots);
        const auto rank = static_cast<std::size_t>(communicator.rank());
        window.windows()[rank][17] = static_cast<std::byte>(rank + 1);
        written.arrive_and_wait();
        for (std::size_t peer = 0; peer < 3; ++peer) {
          EXPECT_EQ(window.windows()[peer][17], static_cast<std::byte>(peer + 1));
        }
      });
}

TEST(HostWindow, SlotsAreApartAndComeBack) {
  with_windows(
      2, 1, [](int) { return kBytes; },
      [](const Communicator&, HostWindow& window) {
        std::vector<std::size_t> slots;
        for (int i = 0; i < HostWindow::kSlots; ++i) slots.push_back(window.take_slot(0));
        const std::size_t first = HostWindow::kPartitions * HostWindow::kControlSegmentBytes;
        const std::size_t bytes = window.slot_bytes();
        EXPECT_THAT(slots, testing::UnorderedElementsAre(first, first + bytes, first + 2 * bytes,
                                                         first + 3 * bytes));
        window.give_back_slot(0, slots[2]);
        EXPECT_EQ(window.take_slot(0), slots[2]);
      });
}

TEST(HostWindow, TheSmallestWindowSetsTheSlots) {
  with_windows(
      3, 1, [](int rank) { return rank == 1 ? kBytes / 2 : kBytes; },
      [](const Communicator& communicator, HostWindow& window) {
        EXPECT_TRUE(window.covers(communicator, 0));
        EXPECT_EQ(window.slot_bytes(), kBytes / 2 / HostWindow::kSlots);
      });
}

TEST(HostWindow, MemoryOfTheArenaIsSeenByThePeers) {
  std::barrier written(2);
  std::vector<std::size_t> offsets(2);
  with_windows(
      2, 1, [](int) { return kBytes; },
      [&](const Communicator& communicator, HostWindow& window) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        ASSERT_NE(window.arena(), nullptr);
        const auto memory = window.arena()->allocate(100 * (rank + 1));
        ASSERT_TRUE(memory.ok()) << memory.error().message;
        (*memory).get()[99] = static_cast<std::byte>(rank + 1);
        const auto offset = window.arena()->offset_of(memory->get(), 100);
        ASSERT_TRUE(offset.has_value());
        EXPECT_GE(*offset, HostWindow::kControlSegmentBytes + kBytes) << "behind the slots";
        offsets[rank] = *offset;
        written.arrive_and_wait();
        const std::size_t other = 1 - rank;
        EXPECT_EQ(window.windows()[other][offsets[other] + 99], static_cast<std::byte>(other + 1));
        written.arrive_and_wait();
      });
}

TEST(HostWindow, ARankWithoutRoomLeavesItsHostWithoutAWindow) {
  // Absurd sizes halve down to what there is; below the smallest there is none.
  with_windows(
      4, 2, [](int rank) { return rank == 3 ? std::size_t{100} : kBytes; },
      [](const Communicator& communicator, HostWindow& window) {
        const bool on_poor_host = communicator.rank() % 2 == 1;
        EXPECT_EQ(window.slot_bytes() == 0, on_poor_host);
        EXPECT_FALSE(window.covers(communicator, 0)) << "it spans two hosts";
      });
}

TEST(HostWindow, AHugeWishIsHalvedUntilItFits) {
  with_windows(
      2, 1, [](int) { return std::size_t{1} << 50; },
      [](const Communicator& communicator, HostWindow& window) {
        EXPECT_TRUE(window.covers(communicator, 0));
        EXPECT_GT(window.slot_bytes(), 0U);
      });
}

TEST(HostWindow, NoneIsWantedAtZeroBytesNorAlone) {
  with_windows(
      2, 1, [](int) { return std::size_t{0}; },
      [](const Communicator& communicator, HostWindow& window) {
        EXPECT_FALSE(window.covers(communicator, 0));
      });
  with_windows(
      1, 1, [](int) { return kBytes; },
      [](const Communicator& communicator, HostWindow& window) {
        EXPECT_FALSE(window.covers(communicator, 0));
      });
}

}  // namespace
}  // namespace kolo::test
