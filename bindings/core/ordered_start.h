// Calls without names, for bindings whose calls already have an order (c10d): in-order submission
// without waiting, and negotiated calls that ranks know by their order. Exported for them, not
// installed. Any thread; the order of calls is the order of operations.
#pragma once

#include "runtime/cycle/ordered_arguments.h"
#include "runtime/submission/entry.h"

#include <kolo/export.h>
#include <kolo/kolo.h>
#include <kolo/work.h>

#include <memory>

namespace kolo {

/// Starts a collective by in-order submission. It matches the other ranks' calls, blocking or not.
/// Throws kInvalidArgument for arguments that can never work, and kShutdown.
KOLO_API std::shared_ptr<Work> start_ordered(const OrderedArguments& arguments,
                                             const KeepAlive& keep_alive);

/// Starts a negotiated collective as the next one of its kind: on each rank the n-th call of a kind
/// is the same operation. If ranks call it with different types, roots or shapes, it fails on all
/// of them. `allocate` is for an output whose size the ranks agree on. Throws kShutdown.
KOLO_API std::shared_ptr<Work> start_by_order(Submission call, Allocator allocate = {});

}  // namespace kolo
