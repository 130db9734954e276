// NcclAllreduce: one all-reduce of device memory through NCCL, of one tensor or of several that are
// packed into a buffer: pack → ncclAllReduce → unpack, all on one stream. Never blocks. An
// operation owns it; used by the holder of the progress token.
#pragma once

#include "runtime/device/accelerator.h"
#include "runtime/nccl/nccl_communicator.h"
#include "runtime/nccl/nccl_communicators.h"

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
    std::byte* buffer = nullptr;  ///< device memory for all pieces; required for several pieces
  };

  /// kUnsupported if NCCL lacks the type or the operation. All arguments outlive the object.
  Status start(NcclCommunicators& communicators, SubmissionMode mode, DeviceStream& stream,
               Plan plan);
  /// True once all work is enqueued on the stream. Precondition: started.
  Result<bool> advance();
  /// Returns an error of NCCL, if there is one by now. Call while the device works.
  Status check();
  /// Describes the state, for messages.
  std::string describe() const;

 private:
  enum class State : std::uint8_t { kWaits, kIssues, kHandedIn };

  Status enqueue(NcclCommunicator& communicator);
  Status copy(bool pack);

  NcclCommunicators* communicators_ = nullptr;
  SubmissionMode mode_ = SubmissionMode::kNegotiated;
  DeviceStream* stream_ = nullptr;
  Plan plan_;
  NcclReduction reduction_;
  std::uint64_t turn_ = 0;
  State state_ = State::kHandedIn;
};

}  // namespace kolo
