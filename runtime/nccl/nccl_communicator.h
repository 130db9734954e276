// NcclCommunicator: one rank's end of an NCCL communicator. Only wait(), finish() and the
// destructor block. A failure is permanent: it aborts the communicator, which ends its work on the
// device, whatever the other ranks do. Used by the holder of the progress token, or the thread that
// calls init.
#pragma once

#include "runtime/base/abort.h"
#include "runtime/base/deadline.h"
#include "runtime/device/accelerator.h"
#include "runtime/nccl/nccl_api.h"
#include "runtime/nccl/nccl_reduction.h"

#include <kolo/error.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kolo {

/// NcclApi::version() as text: "2.28.9".
std::string nccl_version_text(int version);

class NcclCommunicator {
 public:
  struct Identity {
    int rank = 0;  ///< in the communicator
    int size = 1;
    int world_rank = 0;  ///< for messages
    int ordinal = 0;     ///< device, as this process numbers it
    DeviceUuid uuid = {};
    std::string group = {};  ///< Communicator::suffix()
  };
  struct Piece {
    const std::byte* input = nullptr;  ///< device or pinned memory
    std::byte* output = nullptr;       ///< may be `input`
    std::size_t count = 0;             ///< elements of kolo's type
  };

  /// `api` outlives the object.
  NcclCommunicator(NcclApi& api, Identity identity);
  /// Aborts if the communicator has failed or was never ready; otherwise as finish(), with a limit
  /// of five seconds.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Starts to connect to the other ranks, which have the same id.
  Status begin(const NcclUniqueId& id);
  bool begun() const { return handle_ != nullptr || failed(); }
  /// True: everything submitted so far is enqueued on the stream, initialisation included. Only
  /// then may more be submitted, or be enqueued on the stream. An error of NCCL aborts the
  /// communicator.
  Result<bool> poll();
  /// Calls poll() until it is true. Aborts the communicator with kTimeout when the deadline passes,
  /// or with the failure of `abort` when that is raised.
  Status wait(Deadline deadline, const Abort* abort = nullptr);

  /// Submits all pieces as one group. `native_stream`: a cudaStream_t of the device. Precondition:
  /// poll() was true. While nothing is in flight, the communicator needs no call other than poll().
  Status all_reduce(const NcclReduction& reduction, std::span<const Piece> pieces,
                    void* native_stream);

  /// Aborts because this rank will not go on; `why` becomes the failure. Further calls return it.
  void abort(const Error& why);
  bool failed() const { return failure_.has_value(); }
  /// Collective. Blocks until all submitted work is done on all ranks, and frees the handle.
  Status finish(Deadline deadline);

 private:
  /// "rank 2 (GPU-8932f937-…, device 0)", with the group if it is not the world.
  std::string who() const;
  /// Aborts, and returns the error of `call`.
  Error fail(std::string_view call, NcclResult result);
  void free_by_abort();

  NcclApi& api_;
  const Identity identity_;
  NcclHandle handle_ = nullptr;
  bool ready_ = false;  ///< connected to the other ranks
  std::optional<Error> failure_;
};

}  // namespace kolo
