#include "bindings/core/job_failure.h"

#include "bindings/core/global.h"

namespace kolo {

void throw_job_failure() { throw_if_failed(runtime_for("forward")->failure()); }

}  // namespace kolo
