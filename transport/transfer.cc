#include "transport/transfer.h"

#include "runtime/base/check.h"

namespace kolo {

Error TransferListener::mismatch(const Transfer& /*transfer*/, const TransferEnd& receiver,
                                 const TransferEnd& sender) const {
  if (receiver.call != sender.call) {
    return KOLO_ERROR(kMismatch,
                      "rank {} expected a message of call {:#x} from rank {}, which sent one of "
                      "call {:#x}",
                      receiver.rank, receiver.call, sender.rank, sender.call);
  }
  return KOLO_ERROR(kMismatch, "rank {} expected {} bytes from rank {}, which sent {}",
                    receiver.rank, receiver.length, sender.rank, sender.length);
}

}  // namespace kolo
