// OtherNodes: what the kolo-run of one node lets those of the others know. Used by kolo-run's main
// thread, once a rank of this node has failed or it ends for another reason.
#pragma once

#include "tools/run/plan.h"

namespace kolo::run {

/// Rank `rank`, one of this node's, has failed, and kolo-run ends with `exit_code`: ranks of other
/// nodes that still wait for this one's are told by the store, which knows nothing of a rank that
/// ended before it came there. A second at most where nobody serves it.
void tell_of_failure(const Plan& plan, int rank, int exit_code);

}  // namespace kolo::run
