// NcclApi: the NCCL calls that kolo makes, behind an interface, so that callers need neither nccl.h
// nor the library. nccl_library.cc has the real calls; tests have a fake. Enumerators have NCCL's
// own numbers. Any thread; but one communicator is for one thread at a time. See the NCCL 2.28 user
// guide, "Communicator Creation and Management Functions" and "Fault Tolerance".
#pragma once

#include <kolo/error.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct ncclComm;  // nccl.h's

namespace kolo {

/// ncclDataType_t.
enum class NcclType : std::uint8_t {
  kInt8 = 0,
  kUInt8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBFloat16 = 9,
};

/// ncclRedOp_t.
enum class NcclOp : std::uint8_t { kSum = 0, kProduct = 1, kMax = 2, kMin = 3 };

/// ncclResult_t. Any other number counts as kInternalError.
enum class NcclResult : std::uint8_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,  ///< from a non-blocking communicator: ask async_error() until it has ended
};

/// Opaque. Any process that has the id can join the communicator.
using NcclUniqueId = std::array<char, 128>;
using NcclHandle = ::ncclComm*;

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  /// The library's version: 22809 is 2.28.9.
  virtual int version() const = 0;
  virtual NcclResult get_unique_id(NcclUniqueId& id) = 0;
  /// ncclCommInitRankConfig with blocking = 0, on device `ordinal`. Returns at once.
  virtual NcclResult init_rank(NcclHandle& handle, int size, const NcclUniqueId& id, int rank,
                               int ordinal) = 0;
  /// The state of all calls on this communicator so far, initialisation included.
  virtual NcclResult async_error(NcclHandle handle, NcclResult& state) = 0;
  /// `stream` is a cudaStream_t.
  virtual NcclResult all_reduce(const void* input, void* output, std::size_t count, NcclType type,
                                NcclOp op, NcclHandle handle, void* stream) = 0;
  virtual NcclResult group_start() = 0;
  /// Ends the group: enqueues the calls on this communicator since group_start().
  virtual NcclResult group_end(NcclHandle handle) = 0;
  /// Finished once async_error() no longer gives kInProgress.
  virtual NcclResult finalize(NcclHandle handle) = 0;
  /// Frees the handle. Call it after finalize() has finished; otherwise it may block.
  virtual NcclResult destroy(NcclHandle handle) = 0;
  /// Ends the work on the device, whatever the other ranks do, and frees the handle.
  virtual NcclResult abort(NcclHandle handle) = 0;

  virtual std::string error_string(NcclResult result) const = 0;
  /// NCCL's latest error message in this process; may be empty.
  virtual std::string last_error(NcclHandle handle) const = 0;
};

/// Whether this build can load NCCL.
bool nccl_is_built();
/// Loads the library. kUnsupported: this build has no NCCL support, or the library is not on this
/// machine; the message names what was tried.
Result<std::unique_ptr<NcclApi>> open_nccl();

}  // namespace kolo
