// Pieces are cut into tiles and launches: every piece is covered once, each processor gets a share
// of large and small pieces, and no launch exceeds its limit. The memory is never touched.
#include "runtime/device/cuda/batch_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <vector>

namespace kolo::cuda {
namespace {

struct Made {
  std::vector<std::uint32_t> pieces, tiles;      ///< by launch
  std::map<std::uint64_t, std::uint64_t> spans;  ///< bytes from the source's address
  std::uint32_t tile_elements = 0;
};

/// A plan of one source and one destination far away.
Made plan(DataType type, const std::vector<std::uint64_t>& counts, std::uint32_t processors,
          std::uint32_t words = kLargeWords, Scale scale = {.factor = 2}) {
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  std::uint64_t address = 1ULL << 40;
  for (const std::uint64_t count : counts) {
    sources.push_back(reinterpret_cast<const std::byte*>(address));
    destinations.push_back(reinterpret_cast<std::byte*>(address + (1ULL << 45)));
    address += count * size_of(type);
  }
  const Combination what{.type = type, .postscale = scale};
  const PieceList pieces{sources, destinations, counts};
  BatchPlan plan(what, pieces, processors);
  EXPECT_TRUE(plan.check().ok());
  const std::uint64_t size = plan.kernel().kind == KernelKind::kCopy ? 1 : size_of(type);
  Made made;
  const auto batch = std::make_unique<LargeBatch>();
  while (plan.next(*batch, words)) {
    made.pieces.push_back(batch->pieces);
    made.tiles.push_back(batch->tiles);
    made.tile_elements = batch->tile_elements;
    EXPECT_LE(batch->pieces * 3, words);
    std::uint32_t tile = 0;
    for (std::uint32_t piece = 0; piece < batch->pieces; ++piece) {
      EXPECT_EQ(batch->first_tile(piece), tile);
      EXPECT_EQ(batch->piece_of(tile), piece);
      tile += (batch->count(piece) + batch->tile_elements - 1) / batch->tile_elements;
      EXPECT_EQ(batch->piece_of(tile - 1), piece);
      const std::uint64_t* const addresses = batch->addresses(piece);
      EXPECT_EQ(addresses[1] - addresses[0], 1ULL << 45);
      EXPECT_TRUE(made.spans.emplace(addresses[0], batch->count(piece) * size).second);
    }
    EXPECT_EQ(tile, batch->tiles);
  }
  return made;
}

TEST(BatchPlan, OneLargePieceIsForAllProcessors) {
  const Made made = plan(DataType::kFloat32, {1 << 20}, 132);
  EXPECT_EQ(made.tiles.size(), 1U);
  EXPECT_GE(made.tiles[0], 4U * 132);
  EXPECT_EQ(plan(DataType::kFloat32, {1 << 28}, 132).tile_elements, 4096U);
  EXPECT_EQ(plan(DataType::kFloat64, {1 << 28}, 132).tile_elements, 2048U);
}

TEST(BatchPlan, ThirteenHundredPiecesAreOneLaunch) {
  const std::vector<std::uint64_t> counts(1300, 1000);
  const Made made = plan(DataType::kFloat16, counts, 132);
  EXPECT_EQ(made.pieces, (std::vector{1300U}));
  EXPECT_EQ(made.tiles, (std::vector{1300U}));
  EXPECT_EQ(made.spans.size(), 1300U);
}

TEST(BatchPlan, MoreAreSeveral) {
  std::vector<std::uint64_t> counts(5000);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i % 5 == 0 ? 0 : i;
  const Made made = plan(DataType::kInt8, counts, 132);
  EXPECT_EQ(made.pieces, (std::vector{1362U, 1362U, 1276U}));
  EXPECT_EQ(std::accumulate(made.pieces.begin(), made.pieces.end(), 0U), 4000U);
  EXPECT_EQ(plan(DataType::kInt8, counts, 132, kSmallWords).pieces[0], 168U);
  EXPECT_TRUE(plan(DataType::kInt8, {0, 0}, 132).pieces.empty());
  EXPECT_TRUE(plan(DataType::kInt8, {}, 132).pieces.empty());
}

TEST(BatchPlan, APieceOfMoreThan32BitsIsSeveral) {
  const std::uint64_t count = (5ULL << 30) + 12345;
  const Made made = plan(DataType::kFloat32, {count}, 132);
  std::uint64_t end = 1ULL << 40;
  for (const auto& [address, bytes] : made.spans) {
    EXPECT_EQ(address, end);
    end = address + bytes;
  }
  EXPECT_EQ(end, (1ULL << 40) + 4 * count);
  EXPECT_EQ(made.spans.size(), 3U);
}

TEST(BatchPlan, WhatChangesNothingIsACopyOfBytes) {
  const Made made = plan(DataType::kComplex128, {3ULL << 28}, 132, kLargeWords, {});
  std::uint64_t bytes = 0;
  for (const auto& span : made.spans) bytes += span.second;
  EXPECT_EQ(bytes, 16 * (3ULL << 28));
  EXPECT_EQ(made.tile_elements, 16U << 10);
}

}  // namespace
}  // namespace kolo::cuda
