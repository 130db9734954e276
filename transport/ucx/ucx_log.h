// Keeps back UCX's log, because one failure writes a dozen lines; kolo's own error quotes one of
// them. One handler per process, like UCX's log. Any thread, including UCX's own.
#pragma once

#include "transport/ucx/ucx_transport.h"

#include <string>

namespace kolo {

/// From now on UCX's error lines are kept back; warnings and fatal lines go to stderr. With
/// UcxOptions::shows_log or the user's UCX_LOG_LEVEL, all lines go to stderr. With UCX_LOG_FILE
/// nothing changes. Call this before the first UCX context, whose creation warns about variables.
void take_ucx_log(const UcxOptions& options);

/// The first error line of UCX's latest burst, if that was within the last second: the first line
/// is the cause, later ones are consequences. Empty if there was none. Each line is returned once.
std::string ucx_complaint();

}  // namespace kolo
