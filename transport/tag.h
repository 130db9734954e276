// Tag: names a message of an operation of a communicator. Sender and receiver derive it from the
// same schedule, so tags are never negotiated.
#pragma once

#include <cstdint>

namespace kolo {

struct Tag {
  std::uint32_t communicator = 0;  ///< Communicator::tag_space(): communicator and submission mode
  std::uint32_t step = 0;          ///< the schedule's tag of this message
  std::uint64_t operation = 0;     ///< sequence number of the operation
  /// OrderedCall::fingerprint if ranks have not agreed on the operation, else 0. It does not take
  /// part in matching: if message and receive differ in it, the receive fails.
  std::uint64_t call = 0;

  /// Whether a message matches a receive.
  friend bool operator==(const Tag& a, const Tag& b) {
    return a.communicator == b.communicator && a.step == b.step && a.operation == b.operation;
  }
};

/// The other rank of a message, and its tag.
struct MessageKey {
  int peer = 0;
  Tag tag;

  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

}  // namespace kolo
