#include "runtime/base/checksum.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace kolo {
namespace {

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

/// table[k][b]: the CRC of byte b and k zeros behind it.
constexpr Table make_table() {
  constexpr std::uint32_t kReversedPolynomial = 0x82F63B78;
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    table[0][byte] = crc;
  }
  for (std::size_t k = 1; k < table.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xFF];
  return table;
}
constexpr Table kTable = make_table();

/// Eight bytes at a time ("slicing by 8": Kounavis and Berry, 2005).
struct ByTable {
  static std::uint32_t step(std::uint32_t crc, std::uint64_t word) {
    word ^= crc;
    std::uint32_t next = 0;
    for (std::size_t k = 0; k < kTable.size(); ++k)
      next ^= kTable[kTable.size() - 1 - k][(word >> (8 * k)) & 0xFF];
    return next;
  }
};

struct ByInstruction {
  static std::uint32_t step(std::uint32_t crc, std::uint64_t word) {
#if defined(__x86_64__)
    std::uint64_t wide = crc;
    asm("crc32q %1, %0" : "+r"(wide) : "r"(word));
    return static_cast<std::uint32_t>(wide);
#elif defined(__aarch64__)
    asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
#else
    return ByTable::step(crc, word);
#endif
  }
};

bool find_instruction() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("sse4.2") != 0;
#elif defined(__aarch64__)
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
  return false;
#endif
}

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t word_at(const std::byte* bytes, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  return word;
}

template <class Crc>
std::uint32_t checksum(std::span<const std::byte> data, std::uint32_t seed) {
  constexpr std::size_t kLanes = 4;
  constexpr std::uint32_t kFactors[kLanes] = {0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F};
  const std::byte* at = data.data();
  std::size_t left = data.size();
  std::uint32_t lanes[kLanes] = {~seed, 0, 0, 0};
  for (; left >= kLanes * kWord; at += kLanes * kWord, left -= kLanes * kWord) {
    for (std::size_t i = 0; i < kLanes; ++i)
      lanes[i] = Crc::step(lanes[i], word_at(at + i * kWord, kWord));
  }
  std::uint32_t crc = 0;
  // A CRC of the lanes would be blind to words that change places between them. Each factor is odd,
  // so damage within one lane shows always, as in a CRC; damage in several is missed by 2^-32.
  for (std::size_t i = 0; i < kLanes; ++i) crc += lanes[i] * kFactors[i];
  while (left > 0) {
    const std::size_t take = left < kWord ? left : kWord;
    crc = Crc::step(crc, word_at(at, take));
    at += take;
    left -= take;
  }
  return ~crc;
}

}  // namespace

bool has_checksum_instruction() {
  static const bool has = find_instruction();
  return has;
}

std::uint32_t checksum_of(std::span<const std::byte> data, std::uint32_t seed) {
  return has_checksum_instruction() ? checksum<ByInstruction>(data, seed)
                                    : checksum_by_table(data, seed);
}

std::uint32_t checksum_by_table(std::span<const std::byte> data, std::uint32_t seed) {
  return checksum<ByTable>(data, seed);
}

}  // namespace kolo
