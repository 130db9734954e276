// Tag: which message of which operation of which communicator. Sender and receiver derive it from
// the same schedule, so that no tag is ever negotiated.
#pragma once

#include <cstdint>

namespace kolo {

struct Tag {
  std::uint32_t communicator = 0;  ///< id of the communicator (and of its door: see Communicator)
  std::uint32_t step = 0;          ///< the schedule's tag of this message
  std::uint64_t operation = 0;     ///< sequence number of the operation
  /// What this rank takes the operation for (OrderedCall::what), where ranks have not agreed on it;
  /// else 0. It finds no receive: one that a message of another call meets fails.
  std::uint64_t call = 0;

  /// Whether a message meets a receive.
  friend bool operator==(const Tag& a, const Tag& b) {
    return a.communicator == b.communicator && a.step == b.step && a.operation == b.operation;
  }
};

/// From or to whom, and under which tag.
struct MessageKey {
  int peer = 0;
  Tag tag;

  friend bool operator==(const MessageKey&, const MessageKey&) = default;
};

}  // namespace kolo
