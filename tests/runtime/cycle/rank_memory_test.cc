// What a rank of a world of 32,768 keeps in memory for all the others: each part is made as init
// makes it, without the others, and the heap is compared before and after. The printed table is
// that of docs/scale.md; its times are StartUpCosts::decode of kolo-simulate.
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/cycle/cycle.h"
#include "runtime/cycle/group_registry.h"
#include "runtime/device/device.h"
#include "runtime/observe/flight_recorder.h"
#include "tests/support/manual_transport.h"
#include "transport/ucx/ucx_transport.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 32768;
constexpr int kRanksPerHost = 8;
constexpr int kRank = 12345;
constexpr std::size_t kMiB = 1 << 20;

std::size_t heap_bytes() {
  const struct mallinfo2 now = ::mallinfo2();
  return now.uordblks + now.hblkhd;
}

/// As a rank of a large host describes itself that is not bound to cores.
RankInfo info_of(int rank) {
  const int host = rank / kRanksPerHost;
  RankInfo info{.host_id = fmt::format("6f1c2a4e-0d3b-4c55-9b7e-{:012x}/4026531839", host),
                .hostname = fmt::format("node-{:05}.cluster.example", host),
                .pid = 100'000 + rank,
                .pid_namespace = fmt::format("6f1c2a4e-0d3b-4c55-9b7e-{:012x}/4026531836", host),
                .numa_node = rank % 2};
  info.cores.resize(96);
  std::iota(info.cores.begin(), info.cores.end(), 0);
  return info;
}

World world_of_many() {
  std::vector<RankInfo> infos;
  for (int rank = 0; rank < kRanks; ++rank) infos.push_back(info_of(rank));
  return {kRank, std::move(infos)};
}

/// All ranks give what this one gives.
class EchoingBootstrap final : public Bootstrap {
 public:
  std::string description() const override { return "echo"; }
  int rank() const override { return kRank; }
  int size() const override { return kRanks; }
  Result<std::vector<std::string>> exchange(std::string_view, std::string blob, Deadline) override {
    return std::vector<std::string>(kRanks, blob);
  }
};

/// A part, which began at `begin`, is there.
void report(const char* part, std::size_t bytes, std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::printf("%-40s %6.1f MiB, %5.0f bytes for each of %d ranks, %.1f ms\n", part,
              static_cast<double>(bytes) / kMiB, static_cast<double>(bytes) / kRanks, kRanks,
              took.count());
}

std::size_t peak_of_process() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) << 10;
}

Result<std::unique_ptr<Transport>> ucx() { return make_ucx_transport({}); }

TEST(RankMemory, AHandshakeOfManyRanksTakesLittleAtOnce) {
  auto transport = ucx();
  ASSERT_TRUE(transport.ok()) << transport.error().message;
  EchoingBootstrap bootstrap;
  Handshake mine;
  mine.transport = (*transport)->name();
  mine.address = (*transport)->address();
  mine.settings = Config().agreed_settings();
  mine.info = info_of(kRank);
  const std::size_t before = peak_of_process();
  const auto began = std::chrono::steady_clock::now();
  const auto all = exchange_handshake(bootstrap, std::move(mine), Deadline::after(100s));
  const std::size_t peak = peak_of_process() - before;
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_EQ(all->size(), static_cast<std::size_t>(kRanks));
  report("init: the handshake, at its peak", peak, began);
  EXPECT_LT(peak, 64 * kMiB);
}

TEST(RankMemory, ARankKeepsLittleForEachOther) {
  const Config config;
  const Log log("off");
  ManualTransport transport;
  HostWindow window;
  DeviceWindow devices;
  Arena arena(transport, &devices);
  ScheduleCache schedules;
  Timeline timeline;
  FlightRecorder recorder;
  const RankServices services{transport, host_device(), window,   devices,
                              arena,     schedules,     timeline, recorder};
  Waker waker;
  const NcclSite nccl;
  const LinkCosts links;

  std::size_t begin = heap_bytes();
  auto began = std::chrono::steady_clock::now();
  World world = world_of_many();
  const std::size_t of_world = heap_bytes() - begin;
  report("who is where", of_world, began);

  begin = heap_bytes();
  began = std::chrono::steady_clock::now();
  GroupRegistry groups(std::move(world), services, waker, nccl, config, log);
  Cycle cycle(groups, services, links, config, log);
  const std::size_t of_cycle = heap_bytes() - begin;
  report("the cycle: groups, tree, health", of_cycle, began);

  auto network = ucx();
  ASSERT_TRUE(network.ok()) << network.error().message;
  begin = heap_bytes();
  began = std::chrono::steady_clock::now();
  std::vector<Peer> peers(kRanks, {(*network)->address(), /*same_host=*/false});
  const Abort abort;
  ASSERT_TRUE(
      (*network)->connect(kRank, std::move(peers), cycle, abort, Deadline::after(100s)).ok());
  const std::size_t of_links = heap_bytes() - begin;
  report("links of UCX that carry nothing yet", of_links, began);
  std::printf("an address has %zu bytes\n", (*network)->address().size());

  EXPECT_LT(of_world + of_cycle + of_links, 32 * kMiB);
}

}  // namespace
}  // namespace kolo::test
