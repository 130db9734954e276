// What has ended communication, for the bindings, before they find another reason for what follows
// from it. Any thread.
#pragma once

#include <kolo/export.h>

namespace kolo {

/// Throws the failure that all calls are refused with since, if there was one.
KOLO_API void throw_job_failure();

}  // namespace kolo
