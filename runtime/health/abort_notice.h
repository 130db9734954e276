// AbortNotice: a rank's failure as the others hear of it.
#pragma once

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kolo {

struct AbortNotice {
  Error error;
  std::int32_t culprit = -1;  ///< Abort::kNoCulprit: nobody in particular

  std::string encode() const;
  /// Never fails: malformed bytes still say that `sender` has failed.
  static AbortNotice decode(std::span<const std::byte> bytes, int sender);
};

}  // namespace kolo
