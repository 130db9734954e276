// NcclLanes: the NCCL communicators of one group of ranks: one for each door, whose operations keep
// one order on all ranks, as those of different doors do not. Made when a door needs it first: the
// group's rank 0 makes the unique id and sends it to the others. Progress token's holder.
#pragma once

#include "runtime/communicator/control_plane.h"
#include "runtime/nccl/nccl_communicator.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace kolo {

/// What all groups of a rank have in common; no api: KOLO_OPERATIONS is not nccl.
struct NcclSite {
  std::shared_ptr<NcclApi> api;
  int ordinal = 0;
  DeviceUuid uuid = {};
};

class NcclLanes {
 public:
  /// All that it is given outlives it.
  NcclLanes(const NcclSite& site, const Communicator& communicator, ControlPlane& control_plane)
      : site_(site), communicator_(communicator), control_plane_(control_plane) {}

  bool wanted() const { return site_.api != nullptr; }
  /// Before its first use: the door's, as it was made at init.
  void adopt(Door door, std::unique_ptr<NcclCommunicator> lane);
  /// The door's, which may not be connected yet, and is no member's before it has the id: then
  /// null.
  Result<NcclCommunicator*> get(Door door);
  /// Operations hand in in the order of their turns, which is that of their starts on every rank:
  /// all ranks must call NCCL in one order.
  std::uint64_t take_turn(Door door) { return lane_of(door).next_turn++; }
  bool has_turn(Door door, std::uint64_t turn) { return lane_of(door).turn == turn; }
  void end_turn(Door door) { ++lane_of(door).turn; }
  /// kNcclId of the group's rank 0.
  Status on_message(std::string_view payload);
  /// The rank has failed, or goes with operations under way: ends what hangs on the device.
  void abort(const Error& why);

 private:
  struct Lane {
    std::optional<NcclUniqueId> id;
    std::unique_ptr<NcclCommunicator> communicator;
    std::uint64_t next_turn = 0;
    std::uint64_t turn = 0;
  };
  Lane& lane_of(Door door) { return lanes_[static_cast<std::size_t>(door)]; }
  NcclCommunicator::Place place() const;
  Status make_id(Door door, Lane& lane);

  const NcclSite& site_;
  const Communicator& communicator_;
  ControlPlane& control_plane_;
  std::array<Lane, kDoorCount> lanes_;
  std::optional<Error> aborted_;
};

}  // namespace kolo
