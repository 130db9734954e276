// kolo's core interface on raw memory: start, queries, all-reduce, broadcast. <kolo/torch.h> has
// the same on LibTorch tensors, and the training layer.
//
// Threads: any thread may call anything here at any time after init() has returned.
// Errors: functions throw kolo::Exception; an operation's own failure is reported by its Work.
#pragma once

#include <kolo/config.h>
#include <kolo/error.h>
#include <kolo/export.h>
#include <kolo/types.h>
#include <kolo/work.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace kolo {

/// What kolo throws. what() is the message; error() has the code and the place.
class KOLO_API Exception : public std::runtime_error {
 public:
  explicit Exception(Error error);
  ErrorCode code() const noexcept { return error_.code; }
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

struct InitOptions {
  /// Points to the MPI_Comm whose ranks take part; null: MPI_COMM_WORLD, if MPI is the way in.
  const void* mpi_comm = nullptr;
};

/// Collective. Finds the other ranks (an MPI launcher; else a world of one), connects to them and
/// starts the background thread. Throws kMismatch if the environment shows a launcher of more than
/// one process but only one was found, kTimeout after KOLO_INIT_TIMEOUT, kInvalidArgument if kolo
/// is initialised already or a KOLO_ variable does not parse.
KOLO_API void init(int argc, char** argv, const InitOptions& options = {});
KOLO_API void init(const InitOptions& options = {});

/// Ends this rank's part. Operations still under way fail with kShutdown; other ranks that need
/// this one fail with its number. Without effect when kolo is not initialised. Also done at process
/// exit.
KOLO_API void shutdown();

KOLO_API bool is_initialized();

// Queries. Before init() each throws kShutdown, naming the call.
KOLO_API int rank();        ///< 0 … size − 1
KOLO_API int size();        ///< number of processes
KOLO_API int local_rank();  ///< rank among the processes of this host
KOLO_API int local_size();  ///< processes on this host
KOLO_API int cross_rank();  ///< index of this host among those with this local rank
KOLO_API int cross_size();  ///< number of hosts with this local rank

// What this build contains; may be called before init().
KOLO_API bool mpi_built();
KOLO_API bool cuda_built();
KOLO_API bool nccl_built();
/// "0.1.0".
KOLO_API std::string version();

struct AllreduceOptions {
  ReduceOp op = ReduceOp::kSum;
  /// Same on every rank; unique among the operations in flight. Empty: a name by call order, so all
  /// ranks make their unnamed calls in the same order.
  std::string name = {};
  double prescale = 1.0;   ///< multiplies every rank's input before the sum
  double postscale = 1.0;  ///< multiplies the result
  /// This rank has nothing to contribute: it takes part with zeros (its input is not read). If no
  /// rank contributes, outputs are left alone and Work::contributors() is 0.
  bool absent = false;
  /// Kept until the operation is done, for instance the owner of the memory.
  std::shared_ptr<const void> keep_alive = {};
};

struct BroadcastOptions {
  std::string name = {};                        ///< as AllreduceOptions::name
  std::shared_ptr<const void> keep_alive = {};  ///< as AllreduceOptions::keep_alive
};

/// Starts output = op over ranks of input; `shape` elements of `type` in contiguous memory, which
/// must stay until the Work is done; input == output is in place, other overlap is not allowed.
/// Ranks may submit named operations in any order. If ranks disagree on shape, type, operation or
/// factors, the Work fails on all of them with kMismatch, and kolo stays usable. Throws
/// kInvalidArgument for a name that is in flight already.
KOLO_API std::shared_ptr<Work> allreduce_async(const void* input, void* output, const Shape& shape,
                                               DataType type, const AllreduceOptions& options = {});
/// The same, blocking. Throws what the Work failed with.
KOLO_API void allreduce(const void* input, void* output, const Shape& shape, DataType type,
                        const AllreduceOptions& options = {});

/// Starts a copy of the root's buffer into every rank's; else as allreduce_async.
KOLO_API std::shared_ptr<Work> broadcast_async(void* buffer, const Shape& shape, DataType type,
                                               int root, const BroadcastOptions& options = {});
KOLO_API void broadcast(void* buffer, const Shape& shape, DataType type, int root,
                        const BroadcastOptions& options = {});

/// The ordered door: blocking all-reduce without negotiation. Every rank makes the same ordered
/// calls (count, type, op) in the same order, from one thread at a time; kolo cannot tell the
/// tensor when they differ: the lengths clash and the communicator aborts.
KOLO_API void allreduce_ordered(const void* input, void* output, std::int64_t count, DataType type,
                                ReduceOp op);

/// Whether the operation is done; never blocks.
KOLO_API bool poll(const Work& work);
/// Waits, and throws what the operation failed with.
KOLO_API void synchronize(Work& work);

}  // namespace kolo
