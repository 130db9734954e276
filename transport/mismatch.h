// Reports why a message does not fit its receive, in the same words for both transports.
#pragma once

#include <kolo/error.h>

#include <cstddef>
#include <cstdint>

namespace kolo {

/// One end of a transfer.
struct TransferEnd {
  int rank = 0;
  std::size_t length = 0;  ///< bytes
  std::uint64_t call = 0;  ///< Tag::call
};

inline bool fit(const TransferEnd& receiver, const TransferEnd& sender) {
  return receiver.length == sender.length && receiver.call == sender.call;
}

/// kMismatch that names both calls if they differ, else both lengths. Precondition: !fit().
Error mismatch(const TransferEnd& receiver, const TransferEnd& sender);

}  // namespace kolo
