#include "runtime/nccl/nccl_lanes.h"

#include "runtime/base/check.h"

#include <cstring>
#include <string>
#include <utility>

namespace kolo {

void NcclLanes::adopt(Door door, std::unique_ptr<NcclCommunicator> lane) {
  lane_of(door).communicator = std::move(lane);
}

NcclCommunicator::Place NcclLanes::place() const {
  return {.rank = communicator_.rank(),
          .size = communicator_.size(),
          .world_rank = communicator_.world().rank(),
          .ordinal = site_.ordinal,
          .uuid = site_.uuid,
          .group = communicator_.suffix()};
}

// A frame is the door's number and the id.
Status NcclLanes::make_id(Door door, Lane& lane) {
  NcclUniqueId id = {};
  const NcclResult made = site_.api->get_unique_id(id);
  if (made != NcclResult::kSuccess) {
    return KOLO_ERROR(kDevice, "rank {}{}: NCCL {}: ncclGetUniqueId: {}: {}",
                      communicator_.world().rank(), communicator_.suffix(),
                      nccl_version_text(site_.api->version()), site_.api->error_string(made),
                      site_.api->last_error(nullptr));
  }
  std::string frame(1, static_cast<char>(door));
  frame.append(id.data(), id.size());
  KOLO_TRY(control_plane_.send_to_others(MessageKind::kNcclId, frame));
  lane.id = id;
  return {};
}

Result<NcclCommunicator*> NcclLanes::get(Door door) {
  if (aborted_) return *aborted_;
  Lane& lane = lane_of(door);
  if (lane.communicator != nullptr) return lane.communicator.get();
  if (!lane.id && communicator_.rank() == 0) KOLO_TRY(make_id(door, lane));
  if (!lane.id) return nullptr;
  lane.communicator = std::make_unique<NcclCommunicator>(*site_.api, place());
  KOLO_TRY(lane.communicator->begin(*lane.id));
  return lane.communicator.get();
}

Status NcclLanes::on_message(std::string_view payload) {
  NcclUniqueId id = {};
  const auto door = payload.empty() ? kDoorCount : static_cast<int>(payload.front());
  if (payload.size() != 1 + id.size() || door < 0 || door >= kDoorCount) {
    return KOLO_ERROR(kInternal, "rank {}{}: malformed id of NCCL, of {} bytes",
                      communicator_.world().rank(), communicator_.suffix(), payload.size());
  }
  std::memcpy(id.data(), payload.data() + 1, id.size());
  lanes_[static_cast<std::size_t>(door)].id = id;
  return {};
}

void NcclLanes::abort(const Error& why) {
  if (!aborted_) aborted_ = why;
  for (const Lane& lane : lanes_)
    if (lane.communicator != nullptr) lane.communicator->abort(why);
}

}  // namespace kolo
