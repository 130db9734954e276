// CannotRun: explains why a program was not executed, and what to do. Used by kolo-run's main
// thread, on this host and on others.
#pragma once

#include <string>

namespace kolo::run {

/// `reason` is the errno of exec; the files are examined again.
std::string why_it_cannot_run(const std::string& program, int reason);

}  // namespace kolo::run
