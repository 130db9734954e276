// What UCX writes to its log: kept back, since one failure makes it write a dozen lines, and quoted
// by kolo's own error. One for the process, as UCX's log is. Any thread, UCX's own included.
#pragma once

#include "transport/ucx/ucx_transport.h"

#include <string>

namespace kolo {

/// From here on, UCX's error lines are kept back; warnings and what ends the process go to stderr.
/// With UcxOptions::shows_log or the user's UCX_LOG_LEVEL all lines go there; with UCX_LOG_FILE all
/// is as UCX does it. To be called before UCX's first context, whose making warns of variables.
void take_ucx_log(const UcxOptions& options);

/// The first error of those that UCX wrote last, within a second: what follows a cause is its
/// consequences. Empty if there was none; each is quoted once.
std::string ucx_complaint();

}  // namespace kolo
