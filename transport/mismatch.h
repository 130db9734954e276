// What keeps a message from the receive that it meets: both transports say it in the same words.
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

/// kMismatch, naming both calls if they differ, else both lengths. Precondition: they do not fit.
Error mismatch(const TransferEnd& receiver, const TransferEnd& sender);

}  // namespace kolo
