#include "runtime/nccl/nccl_communicators.h"

#include "runtime/base/check.h"

#include <cstring>
#include <string>
#include <utility>

namespace kolo {

void NcclCommunicators::adopt(SubmissionMode mode, std::unique_ptr<NcclCommunicator> slot) {
  slot_of(mode).communicator = std::move(slot);
}

NcclCommunicator::Identity NcclCommunicators::identity() const {
  return {.rank = communicator_.rank(),
          .size = communicator_.size(),
          .world_rank = communicator_.world().rank(),
          .ordinal = site_.ordinal,
          .uuid = site_.uuid,
          .group = communicator_.suffix()};
}

// The frame holds the mode's number and then the id.
Status NcclCommunicators::make_id(SubmissionMode mode, Slot& slot) {
  NcclUniqueId id = {};
  const NcclResult made = site_.api->get_unique_id(id);
  if (made != NcclResult::kSuccess) {
    return KOLO_ERROR(kDevice, "rank {}{}: NCCL {}: ncclGetUniqueId: {}: {}",
                      communicator_.world().rank(), communicator_.suffix(),
                      nccl_version_text(site_.api->version()), site_.api->error_string(made),
                      site_.api->last_error(nullptr));
  }
  std::string frame(1, static_cast<char>(mode));
  frame.append(id.data(), id.size());
  KOLO_TRY(control_plane_.send_to_others(MessageKind::kNcclId, frame));
  slot.id = id;
  return {};
}

Result<NcclCommunicator*> NcclCommunicators::get(SubmissionMode mode) {
  if (aborted_) return *aborted_;
  Slot& slot = slot_of(mode);
  if (slot.communicator != nullptr) return slot.communicator.get();
  if (!slot.id && communicator_.rank() == 0) KOLO_TRY(make_id(mode, slot));
  if (!slot.id) return nullptr;
  slot.communicator = std::make_unique<NcclCommunicator>(*site_.api, identity());
  KOLO_TRY(slot.communicator->begin(*slot.id));
  return slot.communicator.get();
}

Status NcclCommunicators::on_message(std::string_view payload) {
  NcclUniqueId id = {};
  const auto mode = payload.empty() ? kSubmissionModeCount : static_cast<int>(payload.front());
  if (payload.size() != 1 + id.size() || mode < 0 || mode >= kSubmissionModeCount) {
    return KOLO_ERROR(kInternal, "rank {}{}: malformed id of NCCL, of {} bytes",
                      communicator_.world().rank(), communicator_.suffix(), payload.size());
  }
  std::memcpy(id.data(), payload.data() + 1, id.size());
  communicators_[static_cast<std::size_t>(mode)].id = id;
  return {};
}

void NcclCommunicators::abort(const Error& why) {
  if (!aborted_) aborted_ = why;
  for (const Slot& slot : communicators_)
    if (slot.communicator != nullptr) slot.communicator->abort(why);
}

}  // namespace kolo
