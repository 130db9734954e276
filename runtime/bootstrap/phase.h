// Blobs that name their phase of the bootstrap. Some launchers pair exchanges by their order alone;
// this lets ranks at different phases detect that. Pure functions.
#pragma once

#include "runtime/base/check.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace kolo {

inline std::string with_phase(std::string_view phase, std::string_view blob) {
  return fmt::format("{}\n{}", phase, blob);
}

/// The blob that rank `from` passed to with_phase(); kMismatch if it was for another phase.
inline Result<std::string> without_phase(std::string_view phase, std::string_view bytes, int rank,
                                         int from) {
  const std::string_view theirs = bytes.substr(0, bytes.find('\n'));
  if (theirs == phase && theirs.size() < bytes.size())
    return std::string(bytes.substr(theirs.size() + 1));
  return KOLO_ERROR(
      kMismatch,
      "rank {} is at phase '{}' of the bootstrap, but rank {} at '{}'; see whether an "
      "earlier init() has failed on one of them alone (then let all call it again), "
      "and whether all run the same version of kolo",
      rank, phase, from, theirs);
}

}  // namespace kolo
