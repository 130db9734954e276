// OtherNodes: what the kolo-run of one node tells those of the others. Used by kolo-run's main
// thread, once a rank of this node has failed or kolo-run ends for another reason.
#pragma once

#include "tools/run/plan.h"

namespace kolo::run {

/// Rank `rank` of this node has failed, and kolo-run ends with `exit_code`. The store tells ranks
/// of other nodes that still wait for this node's ranks; it does not know of a rank that ended
/// before it reached the store. Takes at most a second if nobody serves the store.
void tell_of_failure(const Plan& plan, int rank, int exit_code);

}  // namespace kolo::run
