// ControlPlane: frames the small messages of a communicator (kind, communicator, payload) over the
// transport. Token holder only.
#pragma once

#include "runtime/communicator/communicator.h"
#include "transport/transport.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

enum class MessageKind : std::uint8_t {
  kReady,       ///< rank → coordinator: slots of the cache that are ready (SlotSet)
  kRequests,    ///< rank → coordinator: requests in full (wire.proto)
  kAgreed,      ///< coordinator → rank: slots of the cache to run, ascending (SlotSet)
  kResponses,   ///< coordinator → rank: responses in full (wire.proto)
  kJoined,      ///< coordinator → rank: who has joined, after how many ordered calls (Controller)
  kOffer,       ///< rank → rank: what it wants to send (PointToPoint)
  kAnswer,      ///< rank → rank: whether that was wanted (PointToPoint)
  kDoorbell,    ///< rank → rank: look at the board, something has come (OneShot)
  kCosts,       ///< coordinator → rank: other costs of links are to count (CostSwitch)
  kCostsHeard,  ///< rank → coordinator: how far it is (CostSwitch)
  kCostsFrom,   ///< coordinator → rank: from where on they count (CostSwitch)
  kSlots,    ///< rank → coordinator: it has memory; coordinator → rank: all have (PlaceSlots)
  kNcclId,   ///< rank 0 of a group → rank: how to meet over NCCL (NcclLanes)
  kBeat,     ///< rank → rank: still here (Heartbeat)
  kCall,     ///< rank → rank: what this one calls where it waits (Cycle::check_calls)
  kGoodbye,  ///< to all that are concerned: this rank shuts down (Departure)
  kAbort,    ///< likewise: this rank has failed (AbortNotice)
};

struct Message {
  MessageKind kind = MessageKind::kReady;
  std::uint32_t communicator = 0;
  std::span<const std::byte> payload;
};

class ControlPlane {
 public:
  ControlPlane(Transport& transport, const Communicator& communicator)
      : transport_(transport), communicator_(communicator) {}

  Status send(int rank, MessageKind kind, std::string_view payload);
  /// To every other rank; the first failure is returned, the rest are tried all the same.
  Status send_to_others(MessageKind kind, std::string_view payload);

  /// Nothing on bytes that are no frame.
  static std::optional<Message> parse(std::span<const std::byte> frame);

 private:
  Transport& transport_;
  const Communicator& communicator_;
  std::string frame_;
};

}  // namespace kolo
