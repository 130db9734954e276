// The one way to block on a transport: poll it briefly, then sleep on its descriptor. Used by
// connect() and flush() of the transports, by blocking calls above them, and by tests. Runs on the
// thread that drives the transport.
#pragma once

#include "runtime/base/abort.h"
#include "runtime/base/deadline.h"

#include <kolo/error.h>

#include <functional>
#include <string_view>

namespace kolo {

class Transport;

/// Drives progress until `done()`. Otherwise the abort's error, or kTimeout with "… while `doing`".
Status progress_until(Transport& transport, const std::function<bool()>& done, const Abort& abort,
                      Deadline deadline, std::string_view doing);

}  // namespace kolo
