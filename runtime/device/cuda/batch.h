// Batch: the work of one launch, as passed in the kernel's parameters. Its pieces are cut into
// tiles, and each block does one tile. Filled by BatchPlan, read by run_tile(). A plain value.
#pragma once

#include "runtime/device/cuda/on_both.h"
#include "runtime/device/device.h"

#include <cstdint>

namespace kolo::cuda {

/// Threads of a block.
inline constexpr std::uint32_t kThreads = 256;

template <std::uint32_t kWords>
struct Batch {
  std::uint32_t pieces;
  std::uint32_t sources;
  std::uint32_t destinations;
  std::uint32_t prescaled;      ///< bit i: source i is prescaled
  std::uint32_t tile_elements;  ///< a power of two, at least 16
  std::uint32_t tiles;          ///< blocks of the launch: all pieces together
  Scale prescale;               ///< floating types: only the factor, already divided by the divisor
  Scale postscale;
  /// First one word for each piece: its first tile in the lower half, its element count in the
  /// upper. Then the addresses, piece by piece: sources, then destinations.
  std::uint64_t words[kWords];

  KOLO_ON_BOTH std::uint32_t first_tile(std::uint32_t piece) const {
    return static_cast<std::uint32_t>(words[piece]);
  }
  KOLO_ON_BOTH std::uint32_t count(std::uint32_t piece) const {
    return static_cast<std::uint32_t>(words[piece] >> 32);
  }
  KOLO_ON_BOTH const std::uint64_t* addresses(std::uint32_t piece) const {
    return words + pieces + static_cast<std::uint64_t>(piece) * (sources + destinations);
  }
  /// The last piece that begins at `tile` or before. Every piece has at least one tile.
  KOLO_ON_BOTH std::uint32_t piece_of(std::uint32_t tile) const {
    std::uint32_t begin = 0;
    for (std::uint32_t end = pieces; end - begin > 1;) {
      const std::uint32_t middle = begin + (end - begin) / 2;
      if (first_tile(middle) <= tile) {
        begin = middle;
      } else {
        end = middle;
      }
    }
    return begin;
  }
};

/// A launch takes at most 32,764 bytes of parameters (CUDA 12.1, sm_70). Fewer bytes are enqueued
/// faster. A SmallBatch is a LargeBatch with fewer words.
inline constexpr std::uint32_t kHeaderBytes = 56;
inline constexpr std::uint32_t kSmallWords = (4096 - kHeaderBytes) / 8;
inline constexpr std::uint32_t kLargeWords = (32764 - kHeaderBytes) / 8;
using SmallBatch = Batch<kSmallWords>;
using LargeBatch = Batch<kLargeWords>;
static_assert(sizeof(SmallBatch) == 4096 && sizeof(LargeBatch) <= 32764);

}  // namespace kolo::cuda
