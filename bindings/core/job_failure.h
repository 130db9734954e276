// The failure that ended communication. Bindings throw it before they report another error that
// only follows from it. Any thread.
#pragma once

#include <kolo/export.h>

namespace kolo {

/// Throws the failure that ended the job, if any. All later calls are refused with it.
KOLO_API void throw_job_failure();

}  // namespace kolo
