// What all-reduces cost, and which is the cheapest.
#include "runtime/collectives/algorithm.h"

#include <gtest/gtest.h>

namespace kolo::test {
namespace {

// Ten microseconds a message, a gigabyte a second.
constexpr LinkCost kLink{.latency_us = 10, .us_per_byte = 1e-3, .reduce_us_per_byte = 1e-4};

TEST(Algorithm, NamesComeBack) {
  for (const Algorithm algorithm : kAlgorithms)
    EXPECT_EQ(algorithm_of(to_string(algorithm)), algorithm);
  EXPECT_EQ(algorithm_of("auto"), std::nullopt);
  EXPECT_EQ(algorithm_of(""), std::nullopt);
}

TEST(Algorithm, PricesCountMessagesBytesAndSums) {
  EXPECT_DOUBLE_EQ(price(Algorithm::kRing, 4, 4000, kLink), 6 * 10 + 2 * 3 + 0.3);
  EXPECT_DOUBLE_EQ(price(Algorithm::kRecursiveDoubling, 4, 4000, kLink), 2 * (10 + 4 + 0.4));
  EXPECT_DOUBLE_EQ(price(Algorithm::kHalvingDoubling, 4, 4000, kLink), 4 * 10 + 2 * 3 + 2 * 0.3);
  // Five ranks: one hands its vector in and gets the sum back.
  EXPECT_DOUBLE_EQ(price(Algorithm::kRecursiveDoubling, 5, 4000, kLink),
                   2 * (10 + 4) + 0.4 + 2 * (10 + 4 + 0.4));
}

TEST(Algorithm, FewBytesTakeFewMessagesAndManyTakeTheRing) {
  for (const int size : {2, 3, 4, 5, 8, 16, 17, 64}) {
    EXPECT_EQ(cheapest(size, 4, kLink, false), Algorithm::kRecursiveDoubling) << size;
    EXPECT_EQ(cheapest(size, std::uint64_t{1} << 30, kLink, false), Algorithm::kRing) << size;
  }
  EXPECT_EQ(cheapest(16, 100'000, kLink, false), Algorithm::kHalvingDoubling);
}

TEST(Algorithm, DeterministicSumsTakeNoRing) {
  for (const int size : {2, 3, 16})
    for (const std::uint64_t bytes : {4ULL, 100'000ULL, 1ULL << 30})
      EXPECT_NE(cheapest(size, bytes, kLink, true), Algorithm::kRing);
}

TEST(Algorithm, TheCheapestIsNeverDearerThanAnother) {
  for (int size = 1; size <= 40; ++size)
    for (std::uint64_t bytes = 1; bytes < (1ULL << 32); bytes *= 3)
      for (const Algorithm other :
           {Algorithm::kRing, Algorithm::kRecursiveDoubling, Algorithm::kHalvingDoubling})
        EXPECT_LE(price(cheapest(size, bytes, kLink, false), size, bytes, kLink),
                  price(other, size, bytes, kLink));
}

}  // namespace
}  // namespace kolo::test
