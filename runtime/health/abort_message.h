// AbortMessage: carries a rank's failure to the others.
#pragma once

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kolo {

struct AbortMessage {
  Error error;
  std::int32_t culprit = -1;  ///< Abort::kNoCulprit: nobody in particular

  std::string encode() const;
  /// Never fails: malformed bytes still say that `sender` has failed.
  static AbortMessage decode(std::span<const std::byte> bytes, int sender);
};

}  // namespace kolo
