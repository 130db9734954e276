// The estimated costs of all-reduces, and the choice of the cheapest.
#include "runtime/collectives/algorithm.h"

#include "runtime/planning/chooser.h"
#include "tests/support/proof_cases.h"

#include <gtest/gtest.h>

#include <vector>

namespace kolo::test::algorithm_test {
namespace {

// Ten microseconds per message, a gigabyte per second.
constexpr LinkCost kLink{.latency_us = 10, .us_per_byte = 1e-3, .reduce_us_per_byte = 1e-4};
// A gigabit per second, between hosts.
constexpr LinkCost kSlow{.latency_us = 50, .us_per_byte = 8e-3, .reduce_us_per_byte = 1e-4};

Network one_host(int size) {
  return {.layout = HostLayout(std::vector<int>(static_cast<std::size_t>(size), 0)),
          .inside = kLink};
}
Network each_its_host(int size) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank);
  return {.layout = HostLayout(hosts), .across = kLink};
}
Network hosts_of(std::vector<int> hosts, std::uint64_t windows = 4 << 20) {
  return {.layout = HostLayout(hosts), .inside = kLink, .across = kSlow, .window_bytes = windows};
}

constexpr Algorithm kMessages[] = {Algorithm::kRing, Algorithm::kRecursiveDoubling,
                                   Algorithm::kHalvingDoubling, Algorithm::kDoubleTree};

TEST(Algorithm, NamesComeBack) {
  for (const Algorithm algorithm : kAlgorithms)
    EXPECT_EQ(algorithm_of(to_string(algorithm)), algorithm);
  EXPECT_EQ(algorithm_of("auto"), std::nullopt);
  EXPECT_EQ(algorithm_of(""), std::nullopt);
}

TEST(Algorithm, PricesCountMessagesBytesSumsAndCopies) {
  const double copies = 2 * 0.4 * 2 / 3;  // a copy reads and writes two thirds of what a sum does
  for (const Network& network : {one_host(4), each_its_host(4)}) {
    EXPECT_DOUBLE_EQ(price(Algorithm::kRing, network, 4000), 6 * 10 + 2 * 3 + 0.3);
    EXPECT_DOUBLE_EQ(price(Algorithm::kRecursiveDoubling, network, 4000),
                     2 * (10 + 4 + 0.4) + copies);
    // Across hosts, algorithms whose partners change get less of the network.
    const double share = network.layout.hosts() > 1 ? 1.1 : 1;
    EXPECT_DOUBLE_EQ(price(Algorithm::kHalvingDoubling, network, 4000),
                     4 * 10 + share * 2 * 3 + 0.3 + copies);
  }
  // Five ranks: one sends its vector to another and gets the sum back.
  EXPECT_DOUBLE_EQ(price(Algorithm::kRecursiveDoubling, one_host(5), 4000),
                   2 * (10 + 4) + 0.4 + 2 * (10 + 4 + 0.4) + copies);
}

TEST(Algorithm, FewBytesTakeFewMessagesAndManyTakeTheRing) {
  for (const int size : {2, 3, 4, 5, 8, 16, 17, 64})
    for (const Network& network : {one_host(size), each_its_host(size)}) {
      EXPECT_EQ(cheapest(network, 4, false), Algorithm::kRecursiveDoubling) << size;
      EXPECT_EQ(cheapest(network, std::uint64_t{1} << 30, false), Algorithm::kRing) << size;
    }
  EXPECT_EQ(cheapest(one_host(16), 100'000, false), Algorithm::kHalvingDoubling);
  EXPECT_EQ(cheapest(each_its_host(4), 50'000, false), Algorithm::kHalvingDoubling);
}

TEST(Algorithm, RanksThatShareCoresPayForEachMessage) {
  Network network = each_its_host(4);
  network.across.crowd_us = 5;
  // Ring and doubling have four messages per round; the two trees have 2 × 3 messages up and down.
  EXPECT_DOUBLE_EQ(price(Algorithm::kRing, network, 4000), 6 * 20 + 2 * 3 + 0.3);
  EXPECT_DOUBLE_EQ(price(Algorithm::kRecursiveDoubling, network, 4000),
                   2 * (20 + 4 + 0.4) + 2 * 0.4 * 2 / 3);
  EXPECT_DOUBLE_EQ(price(Algorithm::kDoubleTree, network, 4000),
                   12 * 5 + 4 * 4 + 2 * 4 + 2 * 0.4 * 4 / 3);
  // Folding takes one message each way: less than a round of all ranks.
  network = each_its_host(3);
  network.across.crowd_us = 10;
  EXPECT_DOUBLE_EQ(price(Algorithm::kRecursiveDoubling, network, 0), 10 + 20 + 10);
  EXPECT_DOUBLE_EQ(price(Algorithm::kRing, network, 0), 4 * 30);
  // With two levels, few elements belong to one slice and one host: one message each way.
  network = hosts_of({0, 0, 1, 1});
  network.across.crowd_us = 40;
  EXPECT_DOUBLE_EQ(price(Algorithm::kHierarchical, network, 0), 2 * 50 + 2 * 10);
  EXPECT_GT(price(Algorithm::kHierarchical, network, 1024),
            price(Algorithm::kRecursiveDoubling, network, 1024));
  EXPECT_EQ(cheapest(network, 4, false), Algorithm::kHierarchical);
}

TEST(Algorithm, BytesThatHideBehindLatencyCountWhereTheyKeepALinkBusy) {
  // The link lets the first bytes of a message through at once, then as many as it carries.
  Network network = each_its_host(3);
  network.across = {.latency_us = 10, .us_per_byte = 8e-3, .early_us = 4096 * 8e-3};
  EXPECT_DOUBLE_EQ(network.across.bytes_us(1024), 0);
  EXPECT_NEAR(network.across.bytes_us(8192), 4096 * 8e-3, 1e-9);
  // In, exchanged and back: three messages, which cost their latency until they fill a link.
  EXPECT_DOUBLE_EQ(price(Algorithm::kRecursiveDoubling, network, 1024), 3 * 10);
  EXPECT_DOUBLE_EQ(price(Algorithm::kRing, network, 1024), 4 * 10);
  EXPECT_NEAR(price(Algorithm::kRecursiveDoubling, network, 4096), 2 * 4096 * 8e-3, 1);
  EXPECT_NEAR(price(Algorithm::kRing, network, 4096), 4 * 4096.0 / 3 * 8e-3, 1);
  EXPECT_EQ(cheapest(network, 1024, false), Algorithm::kRecursiveDoubling);
  EXPECT_EQ(cheapest(network, 4096, false), Algorithm::kRing);
  // Two ranks exchange whole vectors once, or halves twice: the same bytes in half as many
  // messages.
  network.layout = HostLayout(std::vector<int>{0, 1});
  EXPECT_EQ(cheapest(network, 4096, false), Algorithm::kRecursiveDoubling);
  EXPECT_DOUBLE_EQ(price(Algorithm::kDoubleTree, network, 0), 2 * 10);
}

TEST(Algorithm, ManyRanksThatAreNoPowerOfTwoTakeTheTrees) {
  // Halving would need to fold, and the ring has 2·(p−1) messages.
  EXPECT_EQ(cheapest(one_host(47), 1 << 18, false), Algorithm::kDoubleTree);
  EXPECT_EQ(cheapest(each_its_host(24), 1 << 17, false), Algorithm::kDoubleTree);
}

TEST(Algorithm, ChunksOfTheTreesFillThem) {
  EXPECT_EQ(tree_chunk(8, 1 << 30, 64 << 10), 64u << 10);
  EXPECT_EQ(tree_chunk(8, 160 << 10, 64 << 10), 10u << 10);
  EXPECT_EQ(tree_chunk(8, 100, 64 << 10), 4u << 10);
  EXPECT_EQ(tree_chunk(8, 100, 3), 3u);
  EXPECT_EQ(broadcast_chunk(8, 1 << 30, 64 << 10), 64u << 10);
  EXPECT_EQ(broadcast_chunk(8, 160 << 10, 64 << 10), 16u << 10);
  EXPECT_EQ(broadcast_chunk(8, 100, 64 << 10), 8u << 10);
}

TEST(Algorithm, ChunksOfTheRingLetBlocksOverlap) {
  EXPECT_EQ(ring_chunk(4, 1 << 30, 64 << 10), 64u << 10);
  // Two blocks of which no third is left over, whatever the number of ranks.
  for (const int size : {3, 4, 6, 24}) {
    const std::uint64_t chunks = 2 * static_cast<std::uint64_t>(size);
    EXPECT_EQ(ring_chunk(size, 96'000 * chunks, 1 << 20), 96'000u);
    EXPECT_EQ(ring_chunk(size, 96'000 * chunks + 1, 1 << 20), 96'064u);
  }
  EXPECT_EQ(ring_chunk(4, 100, 64 << 10), 4u << 10);
  EXPECT_EQ(ring_chunk(4, 100, 3), 3u);
}

TEST(Algorithm, TheRanksOfAHostShareItsLink) {
  const std::uint64_t large = 64 << 20;
  const Network network = hosts_of({0, 0, 1, 1});
  // Elements across hosts: 2·n·(H−1)/H with two levels, 2·n·(p−1)/p in the ring. Halving and
  // doubling send half of the bytes of each of the two ranks, twice, with changing partners.
  const double two_levels = price(Algorithm::kHierarchical, network, large);
  EXPECT_NEAR(two_levels / price(Algorithm::kRing, network, large), (1.0 / 2) / (3.0 / 4), 0.1);
  EXPECT_NEAR(two_levels / price(Algorithm::kHalvingDoubling, network, large), 1.0 / 2 / 1.4, 0.1);
  // Ring neighbours are neighbours whatever the numbering of the ranks.
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kHierarchical})
    EXPECT_DOUBLE_EQ(price(algorithm, hosts_of({0, 1, 0, 1}), large),
                     price(algorithm, network, large));
}

TEST(Algorithm, ManyRanksTakeFewRoundsForLongerParts) {
  for (const bool sums : {false, true}) {
    std::uint64_t last = 0;
    for (const int size : {4, 8, 16, 64, 256, 1024}) {
      const Network network = each_its_host(size);
      std::uint64_t most = 4;
      while (few_rounds_pay(network, most * 2, sums)) most *= 2;
      EXPECT_GT(most, last) << size;
      last = most;
    }
    EXPECT_GT(last, std::uint64_t{8} << 20);
    // Two or three ranks have as many rounds either way.
    for (const int size : {2, 3}) EXPECT_FALSE(few_rounds_pay(each_its_host(size), 4, sums));
    // All ranks of a host would send most of the bytes to other hosts.
    EXPECT_TRUE(few_rounds_pay(each_its_host(8), 40'000, sums));
    EXPECT_FALSE(few_rounds_pay(hosts_of({0, 0, 0, 0, 1, 1, 1, 1}), 40'000, sums));
  }
  // A rank that is folded sends and gets everything once more.
  EXPECT_TRUE(few_rounds_pay(each_its_host(6), 16'000, false));
  EXPECT_FALSE(few_rounds_pay(each_its_host(6), 16'000, true));
}

/// Bytes that all ranks send for a half type, relative to those without float32 partial sums; with
/// two levels, only between hosts.
double width_on_the_wire(Algorithm algorithm, const HostLayout& layout) {
  const int size = layout.size();
  const auto schedules = schedules_of(size, [&](int rank) {
    return make_schedule({.rank = rank,
                          .size = size,
                          .count = 1 << 12,
                          .algorithm = algorithm,
                          .mapped_elements = 1 << 14,
                          .layout = layout});
  });
  const Traffic traffic = prove(schedules, {});
  return 1 + static_cast<double>(total(traffic.partials)) /
                 static_cast<double>(total(traffic.elements));
}

TEST(Algorithm, PartialSumsOfHalfTypesAreTwiceAsLong) {
  constexpr std::uint64_t kLarge = 64 << 20;
  const auto expect = [&](Algorithm algorithm, const Network& network, double width) {
    SCOPED_TRACE(to_string(algorithm));
    EXPECT_DOUBLE_EQ(width_on_the_wire(algorithm, network.layout), width);
    const double priced =
        price(algorithm, network, kLarge, /*partial_width=*/2) / price(algorithm, network, kLarge);
    EXPECT_NEAR(priced, width, 0.1);
  };
  // One input, p−2 partial sums and p−1 results.
  for (const int size : {2, 3, 4, 8})
    expect(Algorithm::kRing, each_its_host(size), (6.0 * size - 8) / (4.0 * size - 4));
  expect(Algorithm::kRecursiveDoubling, each_its_host(2), 1);
  expect(Algorithm::kRecursiveDoubling, each_its_host(4), 1.5);
  expect(Algorithm::kHalvingDoubling, each_its_host(4), 3.5 / 3);
  expect(Algorithm::kHierarchical, each_its_host(2), 1);
  expect(Algorithm::kHierarchical, hosts_of({0, 0, 1, 1}), 1.5);
  expect(Algorithm::kHierarchical, hosts_of({0, 0, 1, 1, 2, 2}), 1.5);
}

TEST(Algorithm, SeveralRanksOnSeveralHostsTakeTheTwoLevels) {
  for (const auto& hosts : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1, 0, 1},
                            std::vector<int>{0, 0, 0, 1}})
    for (const std::uint64_t bytes : {1ULL << 20, 64ULL << 20})
      for (const std::uint64_t windows : {0ULL, 4ULL << 20})
        EXPECT_EQ(cheapest(hosts_of(hosts, windows), bytes, false), Algorithm::kHierarchical);
  // With a single level the cost is not lower.
  for (const std::uint64_t bytes : {4ULL, 1ULL << 20, 1ULL << 30}) {
    EXPECT_NE(cheapest(one_host(4), bytes, false), Algorithm::kHierarchical);
    EXPECT_NE(cheapest(each_its_host(4), bytes, false), Algorithm::kHierarchical);
  }
}

TEST(Algorithm, DeterministicSumsTakeTheTreesAlone) {
  for (const Network& network : {one_host(2), each_its_host(16), hosts_of({0, 0, 1, 1})})
    for (const std::uint64_t bytes : {4ULL, 100'000ULL, 1ULL << 30}) {
      EXPECT_NE(cheapest(network, bytes, true), Algorithm::kRing);
      EXPECT_NE(cheapest(network, bytes, true), Algorithm::kDoubleTree);
      EXPECT_NE(cheapest(network, bytes, true), Algorithm::kHierarchical);
    }
}

TEST(Algorithm, TheCheapestIsNeverDearerThanAnother) {
  for (int size = 1; size <= 40; ++size)
    for (std::uint64_t bytes = 1; bytes < (1ULL << 32); bytes *= 3)
      for (const Network& network : {one_host(size), each_its_host(size)})
        for (const Algorithm other : kMessages)
          EXPECT_LE(price(cheapest(network, bytes, false), network, bytes),
                    price(other, network, bytes));
}

}  // namespace
}  // namespace kolo::test::algorithm_test
