// kolo's core interface on raw memory. This header has start, queries and shared memory;
// <kolo/collectives.h> has the collectives. <kolo/torch.h> has both on LibTorch tensors, and the
// training layer.
//
//   kolo::init(argc, argv);
//   std::vector<float> values(1000, 1.0F);
//   kolo::allreduce(values.data(), values.data(), {1000}, kolo::DataType::kFloat32,
//                   {.op = kolo::ReduceOp::kAverage, .name = "values"});
//
// - Threads: any thread may call any function here, at any time after init() has returned.
// - Errors: functions throw kolo::Exception. The failure of an operation is reported by its Work.
#pragma once

#include <kolo/collectives.h>
#include <kolo/config.h>
#include <kolo/error.h>
#include <kolo/export.h>
#include <kolo/info.h>
#include <kolo/join.h>
#include <kolo/spawn.h>
#include <kolo/store.h>
#include <kolo/types.h>
#include <kolo/work.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace kolo {

/// The exception that kolo throws. what() is the message; error() has the code and the place.
///
///   try {
///     optimizer.step();
///   } catch (const kolo::Exception& error) {
///     std::cerr << kolo::to_string(error.code()) << ": " << error.what() << '\n';
///   }
class KOLO_API Exception : public std::runtime_error {
 public:
  explicit Exception(Error error);
  ErrorCode code() const noexcept { return error_.code; }
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// kolo looks for each field that is left out in the KOLO_* variables, then in RANK and WORLD_SIZE,
/// then in what an MPI launcher or a Slurm step provides. If it finds nothing, the program is a
/// world of one. docs/launching.md has the whole order. KOLO_LOG_LEVEL=info logs the rendezvous
/// method and why it was chosen.
struct InitOptions {
  /// env://, tcp://host:port, file:///path, mpi://, pmix://, pmi://, slurm:// or single://.
  std::string init_method = {};
  /// 0 … size − 1, different on every process. Set it together with `size`.
  std::optional<int> rank = std::nullopt;
  /// Number of processes, the same on all of them.
  std::optional<int> size = std::nullopt;
  /// Rank among the processes of this host. kolo counts them itself and warns if its count differs.
  std::optional<int> local_rank = std::nullopt;
  /// Store over which the ranks meet, in place of an init method. It needs `rank` and `size`.
  std::shared_ptr<KeyValueStore> store = nullptr;
  /// Library that reduces device memory: "nccl" (needs nccl_built()), or "kolo", which follows
  /// KOLO_OPERATIONS. The same on all ranks.
  std::string backend = "kolo";
  /// CUDA device of this rank (needs cuda_built()). Default: KOLO_DEVICE, else the local rank
  /// modulo the number of visible devices, if there are any.
  std::optional<int> device = std::nullopt;
  /// Tells apart several jobs that share a store. The same on every rank of one job.
  std::string group_name = {};
  /// Deadline of each phase of the start. Default: KOLO_INIT_TIMEOUT.
  std::optional<std::chrono::seconds> timeout = std::nullopt;
  /// Points to the MPI_Comm whose ranks take part. Null: MPI_COMM_WORLD, if MPI is the rendezvous
  /// method.
  const void* mpi_comm = nullptr;
  /// Process sets that exist from the start. The same on every rank, else kMismatch. kUnsupported
  /// in an elastic job, whose worlds have different ranks.
  std::vector<std::vector<int>> process_sets = {};
};

/// Collective. Finds the other ranks, connects to them and starts the background thread. Throws:
/// - kMismatch if ranks disagree on their number, method, backend, group or a knob, or if the
///   environment shows a launcher of more than one process but only one was found.
/// - kTimeout after KOLO_INIT_TIMEOUT, with the missing ranks, and kPeerLost if a rank ended
///   meanwhile. MPI and PMIx report neither of the two.
/// - kInvalidArgument if kolo is initialised already, and for options or KOLO_ variables that do
///   not parse or contradict each other.
/// - kUnsupported in a child that was forked after a call of init(), and for a backend or device
///   that the build lacks.
///
/// Ranks may call init() again after shutdown(), and after a call that failed:
/// - Over TCP and in a file, ranks meet however often each of them has tried.
/// - Over PMIx and PMI they meet too, but ranks that are in different calls first fail with an
///   error that says so.
/// - Over InitOptions::store, the n-th call of each rank meets the n-th of the others, whatever the
///   result of earlier calls was.
/// - Over MPI and PMI, ranks whose deadline has passed do not meet again.
KOLO_API void init(int argc, char** argv, const InitOptions& options = {});
KOLO_API void init(const InitOptions& options = {});

/// Ends this rank's part. Operations in flight fail with kShutdown. Other ranks that need this rank
/// fail with its number.
/// - shutdown() has no effect when kolo is not initialised. It also has none in a callback or
///   signal handler that runs while this thread is inside a call of kolo.
/// - Process exit calls shutdown(), except where exit() comes from such a handler or while another
///   thread is in init(). The rank then leaves without a shutdown notice, and the others find that
///   its process has ended.
/// - If another thread calls exit(), a thread with an operation in flight gets the failure some
///   seconds later.
KOLO_API void shutdown();

/// Ends the job's communication because this rank cannot go on. Every operation in flight and every
/// later one fails on all ranks, with this rank's number and `reason`. Use it for a failure that
/// the other ranks cannot see; otherwise they wait for this rank. It has no effect where shutdown()
/// has none. Any thread.
KOLO_API void abort(const std::string& reason);

KOLO_API bool is_initialized();

// Queries. Each throws kShutdown before init(), naming the call.
KOLO_API int rank();        ///< 0 … size − 1
KOLO_API int size();        ///< number of processes
KOLO_API int local_rank();  ///< rank among the processes of this host
KOLO_API int local_size();  ///< processes on this host
KOLO_API int cross_rank();  ///< index of this host among the hosts that have this local rank
KOLO_API int cross_size();  ///< number of hosts that have this local rank
/// This rank's CUDA device, in the numbering of this process; −1 without a device. KOLO_DEVICE and
/// InitOptions::device choose it. Otherwise it is the local rank modulo the number of visible
/// devices, so ranks may share one.
KOLO_API int device_ordinal();

/// Memory that the ranks of this host share. All-reduces on it copy nothing: each rank reduces the
/// others' memory where it lies.
/// - The memory is zeroed and aligned to pages. The last copy of the pointer frees it and may
///   outlive shutdown().
/// - A forked child writes to its own copy, page by page. Pages that it has not written follow the
///   parent's.
/// - Where ranks share no memory (one rank a host, KOLO_ARENA=0, KOLO_SHARED_MEMORY=0) it is
///   ordinary memory, and all calls work on it.
/// - Throws kOutOfMemory, also when KOLO_ARENA is used up. Any thread.
KOLO_API std::shared_ptr<void> allocate(std::size_t bytes);
/// Like allocate(), on this rank's CUDA device and aligned to 512 bytes. kolo::shared_zeros() and
/// programs without LibTorch use it. Returns null without a CUDA device, where the ranks of this
/// host cannot reach each other's devices, and where KOLO_DEVICE_ARENA has too little left: use
/// your own device memory then. Waits for the device. Throws kDevice. Any thread.
KOLO_API std::shared_ptr<void> allocate_on_device(std::size_t bytes);

// What this build contains. These may be called before init().
KOLO_API bool mpi_built();
KOLO_API bool cuda_built();
KOLO_API bool nccl_built();
/// "0.1.0".
KOLO_API std::string version();

/// Whether the operation is done; never blocks.
KOLO_API bool poll(const Work& work);
/// Waits, and throws the operation's failure.
KOLO_API void synchronize(Work& work);

}  // namespace kolo
