// The ordered door without waiting, for bindings that have an order of calls of their own (c10d).
// Exported for them, not installed. Any thread; the order of calls is the order of operations.
#pragma once

#include "runtime/ordered_arguments.h"

#include <kolo/export.h>
#include <kolo/work.h>

#include <memory>

namespace kolo {

/// Starts a collective of the ordered door: it meets those of the other ranks, whether they wait
/// for theirs or not. `keep_alive` owns the memory until the operation is done. Throws
/// kInvalidArgument for what can never work, and kShutdown.
KOLO_API std::shared_ptr<Work> start_ordered(const OrderedArguments& arguments,
                                             std::shared_ptr<const void> keep_alive);

}  // namespace kolo
