// say: a line of kolo-run's own on standard error, where there is still somebody who reads it. Any
// thread.
#pragma once

#include <string_view>

namespace kolo::run {

/// Never throws. A line for which there is no room within a second is lost: nobody reads.
void say(std::string_view line) noexcept;

}  // namespace kolo::run
