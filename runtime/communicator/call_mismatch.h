// Words for a message of a collective that does not fit its receive: the ranks run different calls,
// or different schedules. For the listeners of transfers (TransferListener::mismatch()).
#pragma once

#include "transport/transfer.h"

#include <kolo/error.h>

namespace kolo {

/// kMismatch that names both calls if they differ, else both lengths. Precondition: !fit().
Error call_mismatch(const TransferEnd& receiver, const TransferEnd& sender);

}  // namespace kolo
