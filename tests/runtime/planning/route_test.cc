// route(): which carrier takes a call. A table of the cases, and properties: ranks that have the
// same values take the same route, and every route is one that can be carried.
#include "runtime/planning/route_table.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace kolo::test::route_test {
namespace {

using enum OperationKind;
constexpr auto kNegotiated = SubmissionMode::kNegotiated;
constexpr auto kInOrder = SubmissionMode::kInOrder;
constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;

/// Ranks of each host, in order of rank.
HostLayout layout_of(const std::vector<int>& ranks_of_hosts) {
  std::vector<int> host_of;
  for (std::size_t host = 0; host < ranks_of_hosts.size(); ++host)
    host_of.insert(host_of.end(), static_cast<std::size_t>(ranks_of_hosts[host]),
                   static_cast<int>(host));
  return HostLayout(host_of);
}

/// A process set on hosts of so many ranks.
Resources set_on(const std::vector<int>& ranks_of_hosts) {
  Resources set{.layout = layout_of(ranks_of_hosts)};
  set.size = set.layout.size();
  return set;
}

Resources one_host(int ranks, bool have_cores = true) {
  Resources set = set_on({ranks});
  set.exchange = exchange_limits(static_cast<std::size_t>(ranks), have_cores, ExchangeUse::kByCost);
  set.maps_windows = true;
  set.slot_bytes = 4 * kMiB;
  return set;
}

Resources crowded_host(int ranks, int cores) {
  Resources set = one_host(ranks, /*have_cores=*/false);
  set.shared_cores = cores;
  return set;
}

Resources without_windows(int ranks) {
  Resources set = set_on({ranks});
  set.exchange = limits_without_segments(static_cast<std::size_t>(ranks), ExchangeUse::kByCost);
  return set;
}

Resources hosts_with_windows(const std::vector<int>& ranks_of_hosts) {
  Resources set = set_on(ranks_of_hosts);
  set.exchange = limits_without_segments(static_cast<std::size_t>(set.size), ExchangeUse::kByCost);
  set.slot_bytes = set.slot_bytes_over_hosts = 4 * kMiB;
  return set;
}

Resources with_devices(Resources set, bool map_windows) {
  set.devices.map_windows = map_windows;
  set.devices.slot_bytes = map_windows ? 16 * kMiB : 0;
  set.devices.slot_bytes_of_hosts = map_windows ? 16 * kMiB : 0;
  return set;
}

/// Devices that are mapped inside each host.
Resources with_devices_of_hosts(Resources set) {
  set.devices.slot_bytes_of_hosts = 16 * kMiB;
  return set;
}

Resources with_nccl(Resources set) {
  set.devices.use_nccl = true;
  return set;
}

/// Links like those of shared memory and of 1 Gbit/s Ethernet.
const Policy kPolicy{.inside = {.latency_us = 1, .us_per_byte = 1e-4, .reduce_us_per_byte = 1e-4},
                     .across = {.latency_us = 20, .us_per_byte = 8e-3, .reduce_us_per_byte = 1e-4}};

Policy forced(Algorithm algorithm) {
  Policy policy = kPolicy;
  policy.forced = algorithm;
  return policy;
}

struct Row {
  std::string name;
  Resources set;
  OperationKind kind;
  SubmissionMode mode;
  bool on_device;
  std::uint64_t bytes;
  std::string route;  ///< carrier and algorithm
  Policy policy = kPolicy;
  bool shared = false;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

std::vector<Row> rows() {
  const auto pair = one_host(2);
  const auto quad = one_host(4);
  const auto hosts = hosts_with_windows({2, 2});
  const auto singles = hosts_with_windows({1, 1, 1, 1});
  return {
      // In-order calls inside a host: the exchange up to its limits, then schedules.
      {"small", pair, kAllreduce, kInOrder, false, 4, "exchange one_shot"},
      {"pair_64K", pair, kAllreduce, kInOrder, false, 64 * kKiB, "exchange one_shot"},
      {"pair_above_64K", pair, kAllreduce, kInOrder, false, 64 * kKiB + 4, "exchange two_shot"},
      {"pair_128K", pair, kAllreduce, kInOrder, false, 128 * kKiB, "exchange two_shot"},
      {"pair_above_128K", pair, kAllreduce, kInOrder, false, 128 * kKiB + 4, "schedule mapped"},
      {"shared_below_4K", pair, kAllreduce, kInOrder, false, 4 * kKiB - 4, "exchange one_shot",
       kPolicy, true},
      {"shared_4K", pair, kAllreduce, kInOrder, false, 4 * kKiB, "exchange two_shot", kPolicy,
       true},
      {"shared_4M", pair, kAllreduce, kInOrder, false, 4 * kMiB, "exchange two_shot", kPolicy,
       true},
      {"shared_above_4M", pair, kAllreduce, kInOrder, false, 4 * kMiB + 4, "schedule mapped",
       kPolicy, true},
      {"quad_8K", quad, kAllreduce, kInOrder, false, 8 * kKiB, "exchange one_shot"},
      {"quad_above_8K", quad, kAllreduce, kInOrder, false, 8 * kKiB + 4, "exchange two_shot"},
      {"quad_without_cores", one_host(4, false), kAllreduce, kInOrder, false, 32 * kKiB,
       "exchange one_shot"},
      {"broadcast_128K", quad, kBroadcast, kInOrder, false, 128 * kKiB, "exchange one_shot"},
      {"broadcast_above", quad, kBroadcast, kInOrder, false, 128 * kKiB + 4, "schedule mapped"},
      {"allgather_128K", quad, kAllgather, kInOrder, false, 128 * kKiB, "exchange one_shot"},
      {"allgather_above", quad, kAllgather, kInOrder, false, 128 * kKiB + 4, "schedule mapped"},
      {"alltoall_128K", quad, kAlltoall, kInOrder, false, 128 * kKiB, "exchange one_shot"},
      {"reduce_scatter_256K", quad, kReduceScatter, kInOrder, false, 256 * kKiB, "schedule mapped"},
      {"gather_128K", quad, kGather, kInOrder, false, 128 * kKiB, "exchange one_shot"},
      {"gather_above_128K", quad, kGather, kInOrder, false, 128 * kKiB + 4, "schedule messages"},
      {"scatter_128K", quad, kScatter, kInOrder, false, 128 * kKiB, "exchange one_shot"},
      {"scatter_above_128K", quad, kScatter, kInOrder, false, 128 * kKiB + 16, "schedule messages"},
      {"gather_over_hosts", hosts, kGather, kInOrder, false, 4, "schedule messages"},
      {"barrier", quad, kBarrier, kInOrder, false, 0, "exchange one_shot"},
      // Negotiated calls inside a host.
      {"negotiated_small", quad, kAllreduce, kNegotiated, false, 4, "schedule mapped"},
      {"negotiated_large", quad, kAllreduce, kNegotiated, false, 64 * kMiB, "schedule mapped"},
      {"negotiated_broadcast_16K", quad, kBroadcast, kNegotiated, false, 16 * kKiB,
       "schedule messages"},
      {"negotiated_broadcast_above", quad, kBroadcast, kNegotiated, false, 16 * kKiB + 4,
       "schedule mapped"},
      {"gather_256K", quad, kGather, kNegotiated, false, 256 * kKiB, "schedule messages"},
      {"gather_above", quad, kGather, kNegotiated, false, 256 * kKiB + 4, "schedule mapped"},
      {"scatter_256K", quad, kScatter, kNegotiated, false, 256 * kKiB, "schedule messages"},
      {"scatter_above", quad, kScatter, kNegotiated, false, 256 * kKiB + 16, "schedule mapped"},
      {"gather_without_windows", without_windows(4), kGather, kNegotiated, false, kMiB,
       "schedule messages"},
      {"no_windows", without_windows(4), kAllreduce, kInOrder, false, 4,
       "schedule recursive_doubling"},
      {"no_windows_two_ranks", without_windows(2), kAllreduce, kInOrder, false, 1 * kKiB,
       "exchange two_rank_exchange"},
      {"no_windows_two_ranks_named", without_windows(2), kAllreduce, kNegotiated, false, 1 * kKiB,
       "schedule recursive_doubling"},
      {"forced_ring", quad, kAllreduce, kNegotiated, false, kMiB, "schedule ring",
       forced(Algorithm::kRing)},
      {"forced_mapped_without_windows", without_windows(4), kAllreduce, kNegotiated, false, 4,
       "schedule recursive_doubling", forced(Algorithm::kMapped)},
      // Several hosts.
      {"hosts_small", hosts, kAllreduce, kInOrder, false, 4, "schedule recursive_doubling"},
      {"hosts_large", hosts, kAllreduce, kNegotiated, false, 16 * kMiB, "schedule hierarchical"},
      {"singles_large", singles, kAllreduce, kNegotiated, false, 16 * kMiB, "schedule ring"},
      {"hosts_allgather_below", hosts, kAllgather, kNegotiated, false, 32 * kKiB - 4,
       "schedule messages"},
      {"hosts_allgather", hosts, kAllgather, kNegotiated, false, 32 * kKiB,
       "schedule hierarchical"},
      {"hosts_reduce_scatter", hosts, kReduceScatter, kNegotiated, false, 128 * kKiB,
       "schedule hierarchical"},
      {"hosts_broadcast_below", hosts, kBroadcast, kNegotiated, false, 4 * kMiB - 4,
       "schedule messages"},
      {"hosts_broadcast", hosts, kBroadcast, kNegotiated, false, 4 * kMiB, "schedule hierarchical"},
      {"hosts_scatter", hosts, kScatter, kNegotiated, false, 16 * kMiB, "schedule messages"},
      {"hosts_alltoall", hosts, kAlltoall, kNegotiated, false, 16 * kMiB, "schedule messages"},
      {"singles_allgather", singles, kAllgather, kNegotiated, false, kMiB, "schedule messages"},
      // Device memory.
      {"devices", with_devices(quad, true), kAllreduce, kNegotiated, true, 4, "device mapped"},
      {"devices_gather", with_devices(quad, true), kGather, kNegotiated, true, 4, "device mapped"},
      {"devices_gather_unmapped", with_devices(quad, false), kGather, kNegotiated, true, kMiB,
       "staged mapped"},
      {"devices_gather_in_pieces", with_devices(without_windows(4), false), kGather, kNegotiated,
       true, kMiB, "device messages"},
      {"devices_unmapped", with_devices(quad, false), kAllreduce, kNegotiated, true, kMiB,
       "staged mapped"},
      {"devices_unmapped_in_pieces", with_devices(without_windows(4), false), kBroadcast,
       kNegotiated, true, kMiB, "device messages"},
      {"devices_of_hosts_below", with_devices_of_hosts(hosts), kAllreduce, kNegotiated, true,
       kMiB - 4, "staged hierarchical"},
      {"devices_of_hosts", with_devices_of_hosts(hosts), kAllreduce, kNegotiated, true, kMiB,
       "device hierarchical"},
      {"nccl", with_nccl(with_devices(quad, true)), kAllreduce, kNegotiated, true, 4, "nccl nccl"},
      {"nccl_leaves_the_rest", with_nccl(with_devices(quad, true)), kBroadcast, kNegotiated, true,
       4, "device mapped"},
      {"nccl_leaves_the_host", with_nccl(quad), kAllreduce, kNegotiated, false, 4,
       "schedule mapped"},
  };
}

class Routes : public testing::TestWithParam<Row> {};
INSTANTIATE_TEST_SUITE_P(Cases, Routes, testing::ValuesIn(rows()),
                         [](const auto& row) { return row.param.name; });

TEST_P(Routes, AreTheOnesOfTheTable) {
  const Row& row = GetParam();
  const CallShape call = even_call(row.kind, row.mode, row.on_device, row.bytes, row.set.size);
  const RouteRow taken = route_row(call, row.set, row.policy, row.shared);
  EXPECT_EQ(std::string(to_string(taken.carrier)) + " " + taken.algorithm, row.route);
}

std::vector<Resources> all_sets() {
  std::vector<Resources> sets;
  for (const bool maps_devices : {false, true})
    for (const Resources& set : {one_host(1), one_host(2), crowded_host(3, 2), one_host(8),
                                 crowded_host(8, 3), without_windows(2), without_windows(5),
                                 hosts_with_windows({2, 2}), hosts_with_windows({1, 3, 2}),
                                 hosts_with_windows({1, 1}), hosts_with_windows({4, 4, 4, 4})})
      sets.push_back(with_devices(set, maps_devices));
  return sets;
}

std::vector<Policy> all_policies() {
  std::vector<Policy> policies = {kPolicy};
  for (const Algorithm algorithm : kAlgorithms) policies.push_back(forced(algorithm));
  policies.push_back(kPolicy);
  policies.back().deterministic = true;
  return policies;
}

// Ranks differ in their number, and in whether their memory lies in place; in nothing else.
TEST(RouteProperties, EqualValuesGiveEqualRoutesOnAllRanks) {
  constexpr OperationKind kKinds[] = {kAllreduce,     kBroadcast, kAllgather, kAlltoall,
                                      kReduceScatter, kGather,    kScatter,   kBarrier};
  for (const Policy& policy : all_policies())
    for (Resources set : all_sets())
      for (const OperationKind kind : kKinds)
        for (const auto mode : {kNegotiated, kInOrder})
          for (const bool on_device : {false, true})
            for (std::uint64_t bytes = 0; bytes <= 64 * kMiB; bytes = bytes * 3 + 4) {
              CallShape call = even_call(kind, mode, on_device, bytes, set.size);
              set.rank = 0;
              Route first = route(call, set, policy);
              for (set.rank = 1; set.rank < set.size; ++set.rank) {
                call.in_place = set.rank % 2 != 0;
                Route other = route(call, set, policy);
                other.request.rank = first.request.rank;
                other.request.in_place = first.request.in_place;
                ASSERT_EQ(other.carrier, first.carrier);
                ASSERT_EQ(other.request, first.request);
                ASSERT_EQ(other.network_is_direct, first.network_is_direct);
              }
            }
}

// A schedule can be made of every route that names one, whatever forces it.
TEST(RouteProperties, EveryRouteHasASchedule) {
  for (const Policy& policy : all_policies())
    for (const Resources& set : all_sets())
      for (const RouteRow& row : route_table(set, policy, true)) {
        if (row.from_bytes > 4 * kMiB || row.kind == kSend) continue;
        const CallShape call =
            even_call(row.kind, row.mode, row.on_device, row.from_bytes, set.size);
        const Route taken = route(call, set, policy);
        if (taken.carrier == CarrierKind::kExchange || taken.carrier == CarrierKind::kNccl)
          continue;
        EXPECT_EQ(make_schedule(taken.request).size, set.size);
      }
}

// With links measured anew, a program gives the same sums.
TEST(RouteProperties, DeterministicReduceScattersDoNotDependOnTheLinks) {
  const auto differ = [](bool deterministic) {
    Policy slow = kPolicy;
    slow.deterministic = deterministic;
    Policy fast = slow;
    fast.across.latency_us /= 100;
    int found = 0;
    for (std::uint64_t bytes = 32; bytes <= 16 * kMiB; bytes *= 2) {
      const CallShape call = even_call(kReduceScatter, kNegotiated, false, bytes, 8);
      const Resources set = set_on({1, 1, 1, 1, 1, 1, 1, 1});
      found += route(call, set, slow).request == route(call, set, fast).request ? 0 : 1;
    }
    return found;
  };
  EXPECT_EQ(differ(true), 0);
  EXPECT_GT(differ(false), 0);
}

// Readers wait until the first block is packed.
TEST(RouteProperties, WhatGoesOneWayHasShorterBlocks) {
  const auto block = [](OperationKind kind, std::uint64_t bytes, int ranks) {
    const CallShape call = even_call(kind, kNegotiated, false, bytes, ranks);
    return route(call, one_host(ranks), kPolicy).request.mapped_elements * size_of(call.type) /
           kPipelineSlots;
  };
  EXPECT_EQ(block(kAllgather, 256 * kKiB, 2), 256 * kKiB);
  EXPECT_EQ(block(kBroadcast, 64 * kKiB, 2), 32 * kKiB) << "the least";
  EXPECT_EQ(block(kBroadcast, 256 * kKiB, 2), 64 * kKiB);
  EXPECT_EQ(block(kBroadcast, 516 * kKiB, 5), 160 * kKiB);
  EXPECT_EQ(block(kBroadcast, 64 * kMiB, 2), 256 * kKiB);
  EXPECT_EQ(block(kGather, 768 * kKiB, 2), 192 * kKiB);
  EXPECT_EQ(block(kGather, 256 * kKiB, 5), 256 * kKiB) << "the other ranks pack meanwhile";
  EXPECT_EQ(block(kGather, 516 * kKiB, 2), 160 * kKiB);
  EXPECT_EQ(block(kGather, 64 * kMiB, 2), 256 * kKiB);
  EXPECT_EQ(block(kScatter, 512 * kKiB, 2), 64 * kKiB);
  EXPECT_EQ(block(kScatter, 288 * kKiB, 3), 128 * kKiB) << "two pieces of it";
  EXPECT_EQ(block(kScatter, 64 * kMiB, 2), 256 * kKiB);
}

// Each rank that sums exchanges signals with all others.
TEST(RouteProperties, WhereRanksWaitForCoresOneRankACoreSums) {
  const auto summing = [](int ranks, int cores) {
    const Resources set = cores == 0 ? one_host(ranks) : crowded_host(ranks, cores);
    return route(even_call(kAllreduce, kNegotiated, false, kMiB, ranks), set, kPolicy)
        .request.owners;
  };
  EXPECT_EQ(summing(4, 0), std::vector<int>()) << "all";
  EXPECT_EQ(summing(4, 1), std::vector<int>({0}));
  EXPECT_EQ(summing(3, 2), std::vector<int>({0, 1}));
  // Ranks 0 to 7 on core 0 and 8 to 15 on core 1, or even ranks on core 0 and odd ones on core 1.
  EXPECT_EQ(summing(16, 2), std::vector<int>({0, 9}));
  EXPECT_EQ(summing(64, 4), std::vector<int>({0, 17, 34, 51}));
  EXPECT_EQ(summing(5, 4), std::vector<int>({0, 1, 2, 3}));
}

TEST(RouteProperties, WhereRanksWaitForCoresBlocksWithAPartForEachRankAreLonger) {
  const auto block = [](OperationKind kind, const Resources& set) {
    const CallShape call = even_call(kind, kNegotiated, false, 4 * kMiB, set.size);
    return route(call, set, kPolicy).request.mapped_elements * size_of(call.type) / kPipelineSlots;
  };
  for (const OperationKind kind : {kAlltoall, kReduceScatter}) {
    EXPECT_EQ(block(kind, one_host(8)), 256 * kKiB) << "a core each";
    EXPECT_EQ(block(kind, crowded_host(2, 1)), 256 * kKiB) << "a part for one rank";
    EXPECT_EQ(block(kind, crowded_host(3, 2)), 512 * kKiB);
    EXPECT_EQ(block(kind, crowded_host(8, 2)), kMiB);
  }
  EXPECT_EQ(block(kAllgather, crowded_host(8, 2)), 256 * kKiB) << "a part of each rank";
}

// A rank that waits for a pipeline slot waits for turns of the others.
TEST(RouteProperties, WhereRanksWaitForCoresPipelineSlotsHoldAllBlocks) {
  const auto block = [](OperationKind kind, std::uint64_t bytes, const Resources& set) {
    const CallShape call = even_call(kind, kNegotiated, false, bytes, set.size);
    const ScheduleRequest request = route(call, set, kPolicy).request;
    const int slots = kind == kAllreduce ? request.pipeline_slots : kPipelineSlots;
    return request.mapped_elements * size_of(call.type) / static_cast<std::uint64_t>(slots);
  };
  const Resources crowded = crowded_host(8, 2);
  EXPECT_EQ(block(kBroadcast, 512 * kKiB, crowded), 256 * kKiB) << "the least";
  EXPECT_EQ(block(kBroadcast, 2 * kMiB, crowded), 512 * kKiB);
  EXPECT_EQ(block(kBroadcast, 16 * kMiB, crowded), kMiB) << "the most";
  EXPECT_EQ(block(kBroadcast, 16 * kMiB, one_host(8)), 256 * kKiB) << "a core each";

  EXPECT_EQ(block(kAllreduce, 256 * kKiB, crowded), 512 * kKiB) << "the least";
  EXPECT_EQ(block(kAllreduce, 3 * kMiB, crowded), 3 * kMiB / 2);
  EXPECT_EQ(block(kAllreduce, 16 * kMiB, crowded), 2 * kMiB) << "the most";
  EXPECT_EQ(block(kAllreduce, 16 * kMiB, one_host(8)), kMiB) << "a core each";
}

TEST(RouteProperties, TheExchangeIsLeftOutOnceItHasDeclined) {
  CallShape call = even_call(kAllreduce, kInOrder, false, kMiB, 2);
  EXPECT_EQ(route(call, one_host(2), kPolicy).carrier, CarrierKind::kExchange);
  call.may_exchange = false;
  EXPECT_EQ(route(call, one_host(2), kPolicy).carrier, CarrierKind::kSchedule);
}

TEST(RouteProperties, ListsOfFusedTensorsLeaveMostOfASlot) {
  EXPECT_EQ(offset_list_bytes(1, kMiB), 0U);
  EXPECT_EQ(offset_list_bytes(2, kMiB), 4 * kKiB);
  EXPECT_EQ(offset_list_bytes(16 * kKiB, kMiB), 256 * kKiB);
  EXPECT_EQ(offset_list_bytes(16 * kKiB + 1, kMiB), 0U);
}

}  // namespace
}  // namespace kolo::test::route_test
