// OtherNodes: what the kolo-run of one node tells those of the others. Used by kolo-run's main
// thread, once a rank of this node has failed or kolo-run ends for another reason.
#pragma once

#include "runtime/base/deadline.h"
#include "tools/run/plan.h"

#include <future>
#include <vector>

namespace kolo::run {

/// Rank `rank` of this node has failed, and kolo-run ends with `exit_code`. The store tells ranks
/// of other nodes that still wait for this node's ranks; it does not know of a rank that ended
/// before it reached the store. Takes at most a second if nobody serves the store.
void tell_of_failure(const Plan& plan, int rank, int exit_code);

/// Tells the store which ranks of this node have ended with exit status 0: ranks that still wait
/// for them fail then.
class GoneRanks {
 public:
  explicit GoneRanks(const Plan& plan);
  /// Returns once all are told, or soon if nobody serves the store.
  ~GoneRanks();
  /// Does not wait.
  void tell(int rank);

 private:
  const Plan& plan_;
  Deadline::Clock::time_point until_;  ///< when to give up
  std::vector<std::future<void>> told_ = {};
};

}  // namespace kolo::run
