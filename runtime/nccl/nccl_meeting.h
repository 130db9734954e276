// How ranks get their NCCL communicator at init: they tell each other what devices they have, see
// whether NCCL can do with these, and connect. The thread that calls init.
#pragma once

#include "runtime/bootstrap/bootstrap.h"
#include "runtime/nccl/nccl_communicator.h"

#include <memory>
#include <string>

namespace kolo {

/// What a rank brings.
struct NcclOffer {
  NcclApi* api = nullptr;  ///< null: see complaint
  int ordinal = 0;
  DeviceUuid uuid = {};
  std::string complaint = {};  ///< why it has no NCCL or no device; empty: it has both
};

/// Collective over all ranks of the bootstrap, rank 0 of which makes the unique id. On every rank
/// alike: kUnsupported for a complaint of any, and for two ranks that share a device, which NCCL
/// before 2.30 refuses; kMismatch for different NCCLs. kTimeout and kDevice name this rank.
Result<std::unique_ptr<NcclCommunicator>> meet_over_nccl(Bootstrap& bootstrap,
                                                         const NcclOffer& mine, Deadline deadline);

}  // namespace kolo
