// NcclCommunicators: the NCCL communicators of one group of ranks, one for each mode. All ranks run
// the operations of one mode in the same order, but not those of different modes. A communicator is
// made when its mode first needs it: the group's rank 0 makes the unique id and sends it to the
// others. Used by the holder of the progress token.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/nccl/nccl_communicator.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace kolo {

/// What all groups of a rank have in common. `api` is null if KOLO_OPERATIONS is not nccl.
struct NcclSite {
  std::shared_ptr<NcclApi> api;
  int ordinal = 0;
  DeviceUuid uuid = {};
};

class NcclCommunicators {
 public:
  /// All arguments outlive the object.
  NcclCommunicators(const NcclSite& site, const Communicator& communicator,
                    ControlPlane& control_plane)
      : site_(site), communicator_(communicator), control_plane_(control_plane) {}

  bool wanted() const { return site_.api != nullptr; }
  /// Takes the communicator of `mode` that was made at init. Call it before the first get() for the
  /// mode.
  void adopt(SubmissionMode mode, std::unique_ptr<NcclCommunicator> slot);
  /// The communicator of `mode`, which may not be connected yet. Null on a rank that has not
  /// received the unique id yet.
  Result<NcclCommunicator*> get(SubmissionMode mode);
  /// Operations enqueue in the order of their turns. This is the order of their starts on every
  /// rank: all ranks must call NCCL in the same order.
  std::uint64_t take_turn(SubmissionMode mode) { return slot_of(mode).next_turn++; }
  bool has_turn(SubmissionMode mode, std::uint64_t turn) { return slot_of(mode).turn == turn; }
  void end_turn(SubmissionMode mode) { ++slot_of(mode).turn; }
  /// Handles the kNcclId message of the group's rank 0. kInternal if malformed.
  Status on_message(std::string_view payload);
  /// Call when the rank has failed, or leaves with operations in flight. Ends their work on the
  /// device.
  void abort(const Error& why);

 private:
  struct Slot {
    std::optional<NcclUniqueId> id;
    std::unique_ptr<NcclCommunicator> communicator;
    std::uint64_t next_turn = 0;
    std::uint64_t turn = 0;
  };
  Slot& slot_of(SubmissionMode mode) { return communicators_[static_cast<std::size_t>(mode)]; }
  NcclCommunicator::Identity identity() const;
  Status make_id(SubmissionMode mode, Slot& slot);

  const NcclSite& site_;
  const Communicator& communicator_;
  ControlPlane& control_plane_;
  std::array<Slot, kSubmissionModeCount> communicators_;
  std::optional<Error> aborted_;
};

}  // namespace kolo
