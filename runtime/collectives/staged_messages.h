// Rewrites a message schedule for memory that the network does not reach. A message is copied to a
// slot of kStaging before it is sent, and is received into a slot and copied from there. Pure.
#pragma once

#include "runtime/collectives/schedule.h"

namespace kolo {

struct StagingOptions {
  int slots = 4;
  /// Forward a received message directly from the slot where it landed, if it is still there. Not
  /// for messages that go around a ring, where each rank's slots would wait for the next rank's.
  bool passes_on = false;
};

/// Returns `schedule` with all messages in kStaging. kStaging holds the schedule's scratch, unless
/// that is mapped. It also holds `slots` slots for sends from other memory and as many for
/// receives, each as long as the longest such message. So copies overlap with the network, and
/// staging memory is bounded if the messages are. Messages, sums and their order do not change, so
/// ranks may differ in whether they stage. Requires slots > 0.
Schedule stage_messages(const Schedule& schedule, const StagingOptions& options);

}  // namespace kolo
