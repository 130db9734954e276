#include "runtime/base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace kolo {
namespace {

std::vector<std::byte> random_bytes(std::size_t size) {
  std::minstd_rand random(static_cast<unsigned>(size) + 1);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
  return bytes;
}

/// CRC32C of a word, bit by bit.
std::uint32_t crc_of_word(std::uint32_t crc, std::uint64_t word) {
  for (int bit = 0; bit < 64; ++bit) {
    const bool is_set = ((crc ^ (word >> bit)) & 1) != 0;
    crc = (crc >> 1) ^ (is_set ? 0x82F63B78 : 0);
  }
  return crc;
}

TEST(Checksum, AWordIsACrc32cBegunByTheLanes) {
  const std::uint64_t word = 0x0123456789ABCDEF;
  const std::uint32_t expected = crc_of_word(~std::uint32_t{7} * 0x9E3779B1, word);
  const auto bytes = std::as_bytes(std::span(&word, 1));
  EXPECT_EQ(checksum_of(bytes, 7), ~expected);
  EXPECT_EQ(checksum_by_table(bytes, 7), ~expected);
}

TEST(Checksum, ProcessorsWithAndWithoutTheInstructionAgree) {
  const auto bytes = random_bytes(300);
  for (std::size_t begin = 0; begin < 9; ++begin)
    for (std::size_t size = 0; size + begin <= bytes.size(); ++size) {
      const auto part = std::span(bytes).subspan(begin, size);
      ASSERT_EQ(checksum_of(part, 3), checksum_by_table(part, 3)) << begin << " " << size;
    }
}

TEST(Checksum, FlippedBitsAreFoundAloneAndInPairs) {
  auto bytes = random_bytes(41);  // whole lanes, a word and a rest
  const std::uint32_t before = checksum_of(bytes);
  const std::size_t bits = 8 * bytes.size();
  const auto flip = [&](std::size_t bit) { bytes[bit / 8] ^= std::byte{1} << (bit % 8); };
  for (std::size_t first = 0; first < bits; ++first) {
    flip(first);
    EXPECT_NE(checksum_of(bytes), before) << first;
    for (std::size_t second = first + 1; second < first + 32 && second < bits; ++second) {
      flip(second);
      EXPECT_NE(checksum_of(bytes), before) << first << " " << second;
      flip(second);
    }
    flip(first);
  }
}

TEST(Checksum, WordsThatChangePlacesAreFound) {
  auto bytes = random_bytes(256);
  const std::uint32_t before = checksum_of(bytes);
  for (std::size_t a = 0; a < 256; a += 8)
    for (std::size_t b = a + 8; b < 256; b += 8) {
      const auto swap = [&] {
        std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(a),
                         bytes.begin() + static_cast<std::ptrdiff_t>(a + 8),
                         bytes.begin() + static_cast<std::ptrdiff_t>(b));
      };
      swap();
      EXPECT_NE(checksum_of(bytes), before) << a << " " << b;
      swap();
    }
}

TEST(Checksum, TheSeedCounts) {
  const auto bytes = random_bytes(20);
  EXPECT_NE(checksum_of(bytes, 1), checksum_of(bytes, 2));
  EXPECT_NE(checksum_of({}, 1), checksum_of({}, 2));
}

}  // namespace
}  // namespace kolo
