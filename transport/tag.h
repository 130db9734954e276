// Tag: which message of which operation of which communicator. Sender and receiver derive it from
// the same schedule, so that no tag is ever negotiated.
#pragma once

#include <compare>
#include <cstdint>

namespace kolo {

struct Tag {
  std::uint32_t communicator = 0;  ///< id of the communicator (and of its door: see Communicator)
  std::uint32_t step = 0;          ///< the schedule's tag of this message
  std::uint64_t operation = 0;     ///< sequence number of the operation

  friend auto operator<=>(const Tag&, const Tag&) = default;
};

}  // namespace kolo
