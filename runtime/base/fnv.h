// FNV-1a of Fowler, Noll and Vo, 64 bits: for texts that are compared and not secret. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace kolo {

/// The hash of `text`, or of an earlier text and this one if `begun` is the earlier text's.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t begun = 0xcbf29ce484222325) {
  for (const char byte : text) begun = (begun ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return begun;
}

}  // namespace kolo
