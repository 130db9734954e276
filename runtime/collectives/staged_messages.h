// Any schedule over messages, for memory that the network does not reach: what it sends is copied
// to a slot of kStaging first, and what it receives lands in one and is copied from there. Pure.
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

struct StagingOptions {
  int slots = 4;
  /// What was received and is sent on as it is, is sent from where it landed, if it is still there.
  /// Not where messages go round, where each rank's slots would wait for the next one's.
  bool passes_on = false;
};

/// `schedule` with all its messages between elements of kStaging: there are its scratch, unless
/// that is mapped, and slots for what is sent of other memory, and as many for what is received
/// there, each as long as the longest such message. So copying and the network work at once, and
/// staging memory is bounded where messages are. Messages, sums and their order stay: ranks may
/// differ in whether they stage. Requires slots > 0.
Schedule stage_messages(const Schedule& schedule, const StagingOptions& options);

}  // namespace kolo
