// In-order submission without waiting, for bindings whose calls already have an order (c10d).
// Exported for them, not installed. Any thread; the order of calls is the order of operations.
#pragma once

#include "runtime/cycle/ordered_arguments.h"

#include <kolo/export.h>
#include <kolo/work.h>

#include <memory>

namespace kolo {

/// Starts a collective by in-order submission. It matches the other ranks' calls, blocking or not.
/// `keep_alive` owns the memory until the operation is done. Throws kInvalidArgument for arguments
/// that can never work, and kShutdown.
KOLO_API std::shared_ptr<Work> start_ordered(const OrderedArguments& arguments,
                                             std::shared_ptr<const void> keep_alive);

}  // namespace kolo
