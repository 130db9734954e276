// What the response cache remembers of splits: for which calls it has a slot, and what a slot
// keeps.
#include "runtime/negotiation/response_cache.h"

#include "runtime/submission/unnamed.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace kolo::response_cache_test {
namespace {

using enum OperationKind;

constexpr std::uint32_t kCapacity = 1024;
const std::string kUnnamed = unnamed_name("alltoall.unnamed[float32 [2]]", 3);

Signature signature_of(OperationKind kind) { return {.kind = kind, .shape = {2}}; }

Response agreed(std::string name, OperationKind kind, int ranks, SplitTable splits) {
  Response response{std::move(name), signature_of(kind), ranks};
  response.participants = ranks;
  response.splits = std::move(splits);
  return response;
}

TEST(ResponseCache, EvenSplitsOfAllUnnamedCallsAreOneNumberEach) {
  constexpr int kRanks = 32768;
  ResponseCache cache(kCapacity, kRanks);
  cache.put(agreed(kUnnamed, kAlltoall, kRanks, {7}));
  ASSERT_EQ(cache.size(), kUnnamedNames);
  for (std::uint32_t slot = 0; slot < cache.size(); ++slot)
    EXPECT_EQ(cache.at(slot)->splits, SplitTable{7});
  const Splits splits(kRanks, 7);
  EXPECT_EQ(cache.find(kUnnamed, signature_of(kAlltoall), splits, kRanks - 1), 0U);
  Splits others = splits;
  others.back() = 8;
  EXPECT_FALSE(cache.find(kUnnamed, signature_of(kAlltoall), others, kRanks - 1));
}

TEST(ResponseCache, UnevenSplitsTakeASlotForTheirOwnNameAlone) {
  ResponseCache cache(kCapacity, 2);
  cache.put(agreed(kUnnamed, kAlltoall, 2, {1, 2, 3, 4}));
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(cache.find(kUnnamed, signature_of(kAlltoall), {3, 4}, 1), 0U);
  EXPECT_FALSE(cache.find(kUnnamed, signature_of(kAlltoall), {1, 2}, 1));
  EXPECT_FALSE(cache.find(kUnnamed, signature_of(kAlltoall), {3, 3}, 1));
}

TEST(ResponseCache, TablesThatAreTooLongAreNotKept) {
  constexpr int kRanks = 257;
  const SplitTable table(kRanks * kRanks, 5);
  ResponseCache cache(kCapacity, kRanks);
  cache.put(agreed("new", kAlltoall, kRanks, table));
  EXPECT_EQ(cache.size(), 0U);

  cache.put(agreed("known", kAlltoall, kRanks, {5}));
  const Response uneven = agreed("known", kAlltoall, kRanks, table);
  cache.put(uneven);
  ASSERT_EQ(cache.size(), 1U) << "a slot keeps its name";
  EXPECT_TRUE(cache.at(0)->splits.empty());
  EXPECT_FALSE(cache.find("known", signature_of(kAlltoall), Splits(kRanks, 5), 0));
  EXPECT_FALSE(cache.find(uneven));

  cache.put(agreed("known", kAlltoall, kRanks, {5}));
  EXPECT_EQ(cache.find("known", signature_of(kAlltoall), Splits(kRanks, 5), 0), 0U);
}

TEST(ResponseCache, EachRankComparesItsOwnSplits) {
  ResponseCache cache(kCapacity, 3);
  cache.put(agreed("gathered", kAllgather, 3, {1, 2, 3}));
  cache.put(agreed("even", kAllgather, 3, {4}));
  cache.put(agreed("scattered", kScatter, 3, {1, 2, 3}));
  const auto finds = [&](const std::string& name, OperationKind kind, const Splits& splits) {
    return cache.find(name, signature_of(kind), splits, /*rank=*/1).has_value();
  };
  EXPECT_TRUE(finds("gathered", kAllgather, {2}));
  EXPECT_FALSE(finds("gathered", kAllgather, {1}));
  EXPECT_TRUE(finds("even", kAllgather, {4}));
  EXPECT_FALSE(finds("even", kAllgather, {2}));
  EXPECT_TRUE(finds("scattered", kScatter, {})) << "not the root";
  EXPECT_TRUE(finds("scattered", kScatter, {1, 2, 3})) << "the root";
  EXPECT_FALSE(finds("scattered", kScatter, {2, 2, 2}));
}

}  // namespace
}  // namespace kolo::response_cache_test
