// How ranks get their NCCL communicator at init: they tell each other their devices, check whether
// NCCL supports them, and connect. Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/nccl/nccl_communicator.h"

#include <memory>
#include <string>

namespace kolo {

/// What a rank offers.
struct NcclOffer {
  NcclApi* api = nullptr;  ///< null: `complaint` says why
  int ordinal = 0;
  DeviceUuid uuid = {};
  std::string complaint = {};  ///< why the rank has no NCCL or no device; empty: it has both
};

/// Collective over all ranks of the bootstrap; rank 0 makes the unique id. Errors, the same on all
/// ranks: kUnsupported if a rank has a complaint, or if two ranks share a device and NCCL is older
/// than 2.30; kMismatch if ranks have different versions of NCCL. kTimeout and kDevice name this
/// rank.
Result<std::unique_ptr<NcclCommunicator>> meet_over_nccl(Bootstrap& bootstrap,
                                                         const NcclOffer& mine, Deadline deadline);

}  // namespace kolo
