#include "runtime/nccl/nccl_meeting.h"

#include "runtime/base/blob.h"
#include "runtime/base/check.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

namespace kolo {
namespace {

constexpr int kSharesDevices = 23000;  ///< NCCL 2.30 allows several ranks on one device

struct Offer {
  std::string complaint;
  int version = 0;
  DeviceUuid uuid = {};
  NcclUniqueId id = {};  ///< set by rank 0
};

std::string encode(const Offer& offer) {
  return join_fields({offer.complaint,
                      std::to_string(offer.version),
                      {reinterpret_cast<const char*>(offer.uuid.data()), offer.uuid.size()},
                      {offer.id.data(), offer.id.size()}});
}

bool decode(const std::string& blob, Offer& offer) {
  std::vector<std::string> fields;
  if (!split_fields(blob, fields) || fields.size() != 4) return false;
  if (fields[2].size() != offer.uuid.size() || fields[3].size() != offer.id.size()) return false;
  offer.complaint = std::move(fields[0]);
  const char* const end = fields[1].data() + fields[1].size();
  if (std::from_chars(fields[1].data(), end, offer.version).ptr != end) return false;
  std::memcpy(offer.uuid.data(), fields[2].data(), offer.uuid.size());
  std::memcpy(offer.id.data(), fields[3].data(), offer.id.size());
  return true;
}

Status check(const std::vector<Offer>& all) {
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].complaint.empty()) continue;
    return KOLO_ERROR(kUnsupported, "KOLO_OPERATIONS=nccl: rank {}: {}", rank, all[rank].complaint);
  }
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].version == all[0].version) continue;
    return KOLO_ERROR(kMismatch,
                      "KOLO_OPERATIONS=nccl: rank 0 has NCCL {}, rank {} has {}; give all ranks "
                      "the same",
                      nccl_version_text(all[0].version), rank,
                      nccl_version_text(all[rank].version));
  }
  if (all[0].version >= kSharesDevices) return {};
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (all[other].uuid != all[rank].uuid) continue;
      return KOLO_ERROR(kUnsupported,
                        "KOLO_OPERATIONS=nccl: ranks {} and {} share {}, which NCCL {} refuses; "
                        "give each rank a GPU of its own, or set KOLO_OPERATIONS=kolo",
                        other, rank, to_string(all[rank].uuid),
                        nccl_version_text(all[rank].version));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<NcclCommunicator>> meet_over_nccl(Bootstrap& bootstrap,
                                                         const NcclOffer& mine, Deadline deadline) {
  Offer offer{.complaint = mine.complaint, .uuid = mine.uuid};
  if (mine.api == nullptr && offer.complaint.empty()) offer.complaint = "it has no NCCL";
  if (offer.complaint.empty()) {
    offer.version = mine.api->version();
    if (bootstrap.rank() == 0) {
      const NcclResult made = mine.api->get_unique_id(offer.id);
      if (made != NcclResult::kSuccess) {
        offer.complaint =
            fmt::format("NCCL {}: ncclGetUniqueId: {}: {}", nccl_version_text(offer.version),
                        mine.api->error_string(made), mine.api->last_error(nullptr));
      }
    }
  }
  KOLO_ASSIGN(const auto blobs, bootstrap.exchange("nccl", encode(offer), deadline));
  std::vector<Offer> all(blobs.size());
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    if (!decode(blobs[rank], all[rank])) {
      return KOLO_ERROR(kInternal, "rank {}: malformed offer of NCCL from rank {}",
                        bootstrap.rank(), rank);
    }
  }
  KOLO_TRY(check(all));
  auto communicator = std::make_unique<NcclCommunicator>(
      *mine.api, NcclCommunicator::Identity{.rank = bootstrap.rank(),
                                            .size = bootstrap.size(),
                                            .world_rank = bootstrap.rank(),
                                            .ordinal = mine.ordinal,
                                            .uuid = mine.uuid});
  KOLO_TRY(communicator->begin(all[0].id));
  KOLO_TRY(communicator->wait(deadline));
  return communicator;
}

}  // namespace kolo
