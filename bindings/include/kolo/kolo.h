// kolo's core interface on raw memory: start and queries here, the collectives in
// <kolo/collectives.h>. <kolo/torch.h> has the same on LibTorch tensors, and the training layer.
//
// Threads: any thread may call anything here at any time after init() has returned.
// Errors: functions throw kolo::Exception; an operation's own failure is reported by its Work.
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

/// What kolo throws. what() is the message; error() has the code and the place.
class KOLO_API Exception : public std::runtime_error {
 public:
  explicit Exception(Error error);
  ErrorCode code() const noexcept { return error_.code; }
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// What is left out is looked for in KOLO_* variables, then in RANK and WORLD_SIZE, then in what an
/// MPI launcher or a Slurm step says; with nothing there, the program is a world of one. The whole
/// order is in docs/launching.md; KOLO_LOG_LEVEL=info says which way was taken, and why.
struct InitOptions {
  /// env://, tcp://host:port, file:///path, mpi://, pmix://, pmi://, slurm:// or single://.
  std::string init_method = {};
  /// 0 … size − 1, different on every process; together with `size`.
  std::optional<int> rank = std::nullopt;
  /// Number of processes, the same on all.
  std::optional<int> size = std::nullopt;
  /// Rank among those of this host. kolo counts for itself and warns if it finds another one.
  std::optional<int> local_rank = std::nullopt;
  /// Where ranks meet, in place of an init method; `rank` and `size` are needed then.
  std::shared_ptr<KeyValueStore> store = nullptr;
  /// Who sums device memory: "nccl", where nccl_built(); "kolo": as KOLO_OPERATIONS. All alike.
  std::string backend = "kolo";
  /// CUDA device of this rank where cuda_built(); nothing: KOLO_DEVICE, else its local rank modulo
  /// the visible devices, if there are any.
  std::optional<int> device = std::nullopt;
  /// Of several jobs that share a store; the same on every rank of one.
  std::string group_name = {};
  /// How long each phase of the start may take; nothing: KOLO_INIT_TIMEOUT.
  std::optional<std::chrono::seconds> timeout = std::nullopt;
  /// Points to the MPI_Comm whose ranks take part; null: MPI_COMM_WORLD, if MPI is the way in.
  const void* mpi_comm = nullptr;
  /// Process sets from the start, the same on every rank: kMismatch otherwise.
  std::vector<std::vector<int>> process_sets = {};
};

/// Collective. Finds the other ranks, connects to them and starts the background thread. Throws
/// kMismatch if ranks disagree on their number, method, backend, group or a knob, or if the
/// environment shows a launcher of more than one process but only one was found; kTimeout after
/// KOLO_INIT_TIMEOUT, with the ranks that are missing, and kPeerLost if a rank ended meanwhile,
/// neither of which MPI and PMIx tell;
/// kInvalidArgument if kolo is initialised already, or for options or KOLO_ variables that do not
/// parse or contradict each other. Ranks may call it again after shutdown(), and after a call
/// that failed. Over TCP and in a file they meet however often each has tried; over PMIx and PMI,
/// too, but ranks that are within different calls fail first, and are told so. Over
/// InitOptions::store the n-th call of each rank, whatever became of those before, meets the n-th
/// of the others. Over MPI and PMI, ranks whose deadline has passed do not meet again. kUnsupported
/// for a child forked after a call of init(), and for a backend or device that the build lacks.
KOLO_API void init(int argc, char** argv, const InitOptions& options = {});
KOLO_API void init(const InitOptions& options = {});

/// Ends this rank's part. Operations still under way fail with kShutdown; other ranks that need
/// this one fail with its number. Without effect when kolo is not initialised, and in a callback or
/// a signal handler beneath which this thread is within a call of kolo. Also done at process exit,
/// but where exit() comes from such a place, or while another thread is in init(): then the rank
/// leaves without a goodbye, and the others find that its process has ended. A thread whose
/// operation fails because another one has called exit() hears of it some seconds later.
KOLO_API void shutdown();

/// Ends the job's communication because this rank cannot go on: every operation under way and every
/// later one fails on all ranks, with this rank's number and `reason`. For a failure that the
/// others cannot see; they would wait for this rank. Without effect when kolo is not initialised,
/// and where shutdown() is without. Any thread.
KOLO_API void abort(const std::string& reason);

KOLO_API bool is_initialized();

// Queries. Before init() each throws kShutdown, naming the call.
KOLO_API int rank();        ///< 0 … size − 1
KOLO_API int size();        ///< number of processes
KOLO_API int local_rank();  ///< rank among the processes of this host
KOLO_API int local_size();  ///< processes on this host
KOLO_API int cross_rank();  ///< index of this host among those with this local rank
KOLO_API int cross_size();  ///< number of hosts with this local rank
/// This rank's CUDA device, as this process numbers them; −1: it has none. KOLO_DEVICE and
/// InitOptions::device choose, else the local rank does, modulo the devices that are visible: ranks
/// may share one.
KOLO_API int device_ordinal();

/// Memory that the ranks of this host share: all-reduces on it copy nothing, each rank adds up the
/// others' memory where it lies. Zeroed, aligned to pages; freed with the last copy of the pointer,
/// which may outlive shutdown(). A forked child changes a copy of its own, page by page as it
/// writes; what it has not written follows the parent's. Where ranks share no memory (one rank a
/// host, KOLO_ARENA=0, KOLO_SHARED_MEMORY=0) it is ordinary memory, and all calls work as on any
/// other. Throws kOutOfMemory, also beyond KOLO_ARENA. Any thread.
KOLO_API std::shared_ptr<void> allocate(std::size_t bytes);
/// The same of this rank's CUDA device, aligned to 512 bytes, for kolo::shared_zeros() and programs
/// without LibTorch. Null where the ranks of this host do not reach each other's devices, without
/// one, and where KOLO_DEVICE_ARENA has too little left: then take memory of your own. Waits for
/// the device. Throws kDevice. Any thread.
KOLO_API std::shared_ptr<void> allocate_on_device(std::size_t bytes);

// What this build contains; may be called before init().
KOLO_API bool mpi_built();
KOLO_API bool cuda_built();
KOLO_API bool nccl_built();
/// "0.1.0".
KOLO_API std::string version();

/// Whether the operation is done; never blocks.
KOLO_API bool poll(const Work& work);
/// Waits, and throws what the operation failed with.
KOLO_API void synchronize(Work& work);

}  // namespace kolo
