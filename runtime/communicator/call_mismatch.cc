#include "runtime/communicator/call_mismatch.h"

#include "runtime/base/check.h"
#include "runtime/base/ordered_call.h"

namespace kolo {

Error call_mismatch(const TransferEnd& receiver, const TransferEnd& sender) {
  if (receiver.call != sender.call) {
    return KOLO_ERROR(kMismatch, "{}",
                      clash_text(receiver.rank, receiver.call, sender.rank, sender.call, ""));
  }
  return KOLO_ERROR(kMismatch,
                    "rank {} expected {} bytes from rank {}, which sent {}: the two ranks run "
                    "different schedules",
                    receiver.rank, receiver.length, sender.rank, sender.length);
}

}  // namespace kolo
