// ControlPlane: sends a communicator's control messages over the transport, in frames of kind,
// communicator and payload. Token holder only.
#pragma once

#include "runtime/communicator/communicator.h"
#include "transport/transport.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

enum class MessageKind : std::uint8_t {
  // Towards the coordinator and from it, through ranks between (ControlTree).
  kReady,      ///< cache slots that the sender and all ranks below it are ready for (SlotSet)
  kReadyOf,    ///< cache slots that some ranks are ready for, by rank (SlotSet)
  kRequests,   ///< full requests (wire.proto)
  kAgreed,     ///< cache slots to run, ascending (SlotSet)
  kResponses,  ///< full responses (wire.proto)
  kJoined,     ///< who has joined, after how many ordered calls (Controller)
  kPlan,       ///< lists of cache slots to follow from now on (LockedPlan)
  kOffer,      ///< rank → rank: a message that it wants to send (PointToPoint)
  kAnswer,     ///< rank → rank: whether the offer was wanted (PointToPoint)
  kCount,      ///< rank → rank: what hosts have counted of a locked plan (CountDissemination)
  kDoorbell,   ///< rank → rank: something has come in the control segment
  kSlots,  ///< rank → coordinator: it has memory; coordinator → rank: all have (PartitionSlots)
  kNcclId,          ///< rank 0 of a group → rank: how to meet over NCCL (NcclCommunicators)
  kBeat,            ///< rank → rank: the sender is alive (Heartbeat)
  kCall,            ///< rank → rank: the call in which the sender waits (Cycle::check_calls)
  kShutdownNotice,  ///< to all that need it: this rank shuts down (Departures)
  kAbort,           ///< to all that need it: this rank has failed (AbortMessage)
  kSetAborted,      ///< to all ranks of the set: this rank has aborted it (AbortMessage)
};

struct Message {
  MessageKind kind = MessageKind::kReady;
  std::uint32_t communicator = 0;
  std::span<const std::byte> payload;

  std::string_view text() const {
    return {reinterpret_cast<const char*>(payload.data()), payload.size()};
  }
};

class ControlPlane {
 public:
  ControlPlane(Transport& transport, const Communicator& communicator)
      : transport_(transport), communicator_(communicator) {}

  Status send(int rank, MessageKind kind, std::string_view payload);
  /// Tries all these ranks, and returns the first failure.
  Status send(const std::vector<int>& ranks, MessageKind kind, std::string_view payload);
  /// Sends to every other rank. Tries all of them, and returns the first failure.
  Status send_to_others(MessageKind kind, std::string_view payload);

  /// Nothing if the bytes are not a frame.
  static std::optional<Message> parse(std::span<const std::byte> frame);

 private:
  Transport& transport_;
  const Communicator& communicator_;
  std::string frame_;
};

}  // namespace kolo
