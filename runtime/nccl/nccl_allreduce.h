// NcclAllreduce: one all-reduce of device memory through NCCL, of one tensor or several that are
// packed into a buffer: pack → ncclAllReduce → unpack, all on one stream. Never blocks. Belongs to
// an operation; progress token's holder.
#pragma once

#include "runtime/device/accelerator.h"
#include "runtime/nccl/nccl_communicator.h"
#include "runtime/nccl/nccl_lanes.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

class NcclAllreduce {
 public:
  struct Plan {
    DataType type = DataType::kFloat32;
    ReduceOp op = ReduceOp::kSum;
    Scale prescale = {};
    Scale postscale = {};
    std::vector<NcclCommunicator::Piece> pieces;
    std::byte* buffer = nullptr;  ///< of the device, for all pieces; needed for several
  };

  /// kUnsupported for what NCCL has not. What it is given outlives it.
  Status start(NcclLanes& lanes, Door door, DeviceStream& stream, Plan plan);
  /// True: all of it is on the stream. Precondition: started.
  Result<bool> advance();
  /// While the device works: an error of NCCL's, if it has one by now.
  Status check();
  /// Where it stands.
  std::string describe() const;

 private:
  enum class State : std::uint8_t { kWaits, kIssues, kHandedIn };

  Status hand_in(NcclCommunicator& communicator);
  Status copy(bool pack);

  NcclLanes* lanes_ = nullptr;
  Door door_ = Door::kNamed;
  DeviceStream* stream_ = nullptr;
  Plan plan_;
  NcclReduction reduction_;
  std::uint64_t turn_ = 0;
  State state_ = State::kHandedIn;
};

}  // namespace kolo
