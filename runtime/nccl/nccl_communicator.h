// NcclCommunicator: one rank's end of a NCCL communicator. Nothing here blocks but wait(), finish()
// and the destructor. A failure is sticky: it aborts the communicator, which ends what runs on the
// device whatever the other ranks do. Progress token's holder, or the thread that calls init.
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

/// "2.28.9" of NcclApi::version().
std::string nccl_version_text(int version);

class NcclCommunicator {
 public:
  struct Place {
    int rank = 0;  ///< in the communicator
    int size = 1;
    int world_rank = 0;  ///< for messages
    int ordinal = 0;     ///< of the device, in this process
    DeviceUuid uuid = {};
    std::string group = {};  ///< Communicator::suffix()
  };
  struct Piece {
    const std::byte* input = nullptr;  ///< of the device, or pinned
    std::byte* output = nullptr;       ///< may be `input`
    std::size_t count = 0;             ///< elements of kolo's type
  };

  /// The api outlives it.
  NcclCommunicator(NcclApi& api, Place place);
  /// Aborts after a failure or when it was never ready; else as finish(), for some seconds.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Begins to meet the other ranks, which have the same id.
  Status begin(const NcclUniqueId& id);
  bool begun() const { return handle_ != nullptr || failed(); }
  /// True: what it was given is on the stream, initialisation included; then, and only then, may it
  /// be given more, and may its stream be. An error of NCCL's aborts.
  Result<bool> poll();
  /// Polls until that is true. kTimeout, also of a deadline that has passed, aborts; so does
  /// `abort`, whose failure is returned then.
  Status wait(Deadline deadline, const Abort* abort = nullptr);

  /// Hands in all pieces as one group. Precondition: poll() was true. `native_stream` is a
  /// cudaStream_t of the device. With nothing in flight it needs nothing of the caller but poll().
  Status all_reduce(const NcclReduction& reduction, std::span<const Piece> pieces,
                    void* native_stream);

  /// This rank will not go on: as after a failure, with that text. Further calls do nothing.
  void abort(const Error& why);
  bool failed() const { return failure_.has_value(); }
  /// Collective: waits until what was handed in is done everywhere, and frees the handle.
  Status finish(Deadline deadline);

 private:
  /// "rank 2 (GPU-8932f937-…, device 0)", and the group if it is no world.
  std::string who() const;
  /// Aborts, and is the error of `call`.
  Error fail(std::string_view call, NcclResult result);
  void free_by_abort();

  NcclApi& api_;
  const Place place_;
  NcclHandle handle_ = nullptr;
  bool ready_ = false;  ///< has met the others
  std::optional<Error> failure_;
};

}  // namespace kolo
