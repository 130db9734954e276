// CannotRun: why a program was not executed, in words that say what to do. Used by kolo-run's main
// thread, here and as the kolo-run of another host.
#pragma once

#include <string>

namespace kolo::run {

/// `reason` is exec's errno; the files are looked at again.
std::string why_it_cannot_run(const std::string& program, int reason);

}  // namespace kolo::run
