// Sizes and numbers on the command lines of kolo-perf and kolo-kernels. A wrong value
// is refused in a sentence that quotes it. Called while a command line is described.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

namespace kolo::perf {

/// 1 PiB: more than any memory has, and exact as a double.
inline constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 50;

/// Bytes from `least` to kMaxBytes, optionally with the suffix K, M, G, T or P (powers of 1024; Ki,
/// KB and KiB mean the same). The text becomes the number of bytes.
CLI::Validator as_bytes(std::uint64_t least);

/// A finite number from `least` to `most`.
CLI::Validator number_within(double least, double most);

}  // namespace kolo::perf
