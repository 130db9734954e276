// Checksums of messages: CRC32C (Castagnoli), by the processor's instruction where it has one.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo {

/// CRC32C of `data`, begun with `seed`, in four interleaved lanes, because one lane would wait for
/// the instruction's latency. The value is the same on all processors, but not that of a plain
/// CRC32C. Zeros at the end count only if `seed` tells the length.
std::uint32_t checksum_of(std::span<const std::byte> data, std::uint32_t seed = 0);
/// checksum_of() for processors that lack the instruction.
std::uint32_t checksum_by_table(std::span<const std::byte> data, std::uint32_t seed = 0);
/// Whether checksum_of() uses the instruction.
bool has_checksum_instruction();

}  // namespace kolo
