// say: writes a line of kolo-run's own to standard error, if somebody still reads it. Any thread.
#pragma once

#include <string_view>

namespace kolo::run {

/// Never throws. Drops the line if there is no room for it within a second: nobody reads.
void say(std::string_view line) noexcept;

}  // namespace kolo::run
