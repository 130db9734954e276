// kolo for C and for languages that call C (Fortran, Rust, C#, Java, Python's ctypes). It has the
// core interface of <kolo/kolo.h> and <kolo/collectives.h>. Their rules on names, process sets,
// joins, devices and in-order submission hold here too. docs/c_api.md has examples.
//
//   if (kolo_init(NULL) != KOLO_SUCCESS) puts(kolo_last_error());
//   const int64_t shape[] = {1000};
//   const kolo_options options = {.name = "gradient"};
//   kolo_allreduce(gradient, gradient, shape, 1, KOLO_FLOAT32, KOLO_AVERAGE, &options, NULL);
//   kolo_shutdown();
//
// - Status: functions that can fail return a kolo_status. kolo_last_error() returns the message of
//   the calling thread's last failure. No exception leaves a function.
// - Structs: zero is the default of every field, so `kolo_options options = {0};` and memset work.
// - Blocking calls: if `work` is NULL, the call blocks until the operation is done and returns the
//   operation's status.
// - Other calls start the operation and set *work to a handle. Wait for it, query it, and free it.
//   Such a call returns only errors in the call itself; after one, *work is NULL.
// - Enumerations are int32_t, for other languages. Functions refuse undefined values.
// - Memory of an operation must stay until the operation is done.
// - Threads: any thread may call any function.
#pragma once

#include <kolo/export.h>

#include <stddef.h>
#include <stdint.h>

// NOLINTBEGIN(readability-identifier-naming)

#ifdef __cplusplus
extern "C" {
#endif

// Status of a call. The errors are those of kolo::ErrorCode.
typedef int32_t kolo_status;
enum {
  KOLO_SUCCESS = 0,
  KOLO_ERROR_INVALID_ARGUMENT = 1,  // the caller passed something that can never work
  KOLO_ERROR_MISMATCH = 2,          // ranks disagree (shape, type, operation, settings, version)
  KOLO_ERROR_TIMEOUT = 3,           // a deadline passed; the message says who was waited for
  KOLO_ERROR_PEER_LOST = 4,         // another rank exited, crashed or became unreachable
  KOLO_ERROR_TRANSPORT = 5,         // the transport library reported a failure
  KOLO_ERROR_DEVICE = 6,            // the device or its driver reported a failure
  KOLO_ERROR_OUT_OF_MEMORY = 7,     // host, shared or device memory is exhausted
  KOLO_ERROR_UNSUPPORTED = 8,       // valid, but not in this build or on this machine
  KOLO_ERROR_ABORTED = 9,           // the communicator was aborted by an earlier failure
  KOLO_ERROR_SHUTDOWN = 10,         // kolo was shut down, or was never initialised
  KOLO_ERROR_INTERNAL = 11          // a bug in kolo
};

// Element types, as kolo::DataType.
typedef int32_t kolo_type;
enum {
  KOLO_FLOAT32 = 0,
  KOLO_FLOAT64 = 1,
  KOLO_BFLOAT16 = 2,
  KOLO_INT64 = 3,
  KOLO_FLOAT16 = 4,
  KOLO_INT32 = 5,
  KOLO_INT16 = 6,
  KOLO_INT8 = 7,
  KOLO_UINT8 = 8,
  KOLO_BOOL = 9,  // one byte, 0 or 1
  KOLO_COMPLEX64 = 10,
  KOLO_COMPLEX128 = 11
};

// Reductions, as kolo::ReduceOp.
typedef int32_t kolo_op;
enum {
  KOLO_SUM = 0,
  KOLO_AVERAGE = 1,
  KOLO_MIN = 2,
  KOLO_MAX = 3,
  KOLO_PRODUCT = 4,
  KOLO_ADASUM = 5
};

// One operation that was started.
typedef struct kolo_work kolo_work;

// Returns memory for an output with `dimensions` extents, outermost first. The memory must stay
// until the operation is done. NULL fails the operation on this rank. kolo calls it once, perhaps
// from its own thread. It must not call kolo.
typedef void* (*kolo_allocator)(void* context, const int64_t* shape, int dimensions);

typedef struct kolo_options {
  const char* name;      // equal on every rank, unique among those in flight; NULL: none
  uint32_t process_set;  // 0: the world
  double prescale;       // reductions: multiplies every input (integers truncate); 0: 1
  double postscale;      // reductions: multiplies the result; 0 stands for 1
  int absent;            // allreduce: this rank contributes zeros
  int on_device;         // not 0: all memory is on this rank's CUDA device, ready after `stream`
  void* stream;          // the cudaStream_t for on_device
  // Allocates outputs whose size the ranks agree on. Required with on_device and where `work` is
  // NULL. NULL: kolo allocates host memory, which kolo_output() returns and which is freed with the
  // work.
  kolo_allocator allocate;
  void* context;  // passed to `allocate`
} kolo_options;

// Message of this thread's last failure, "" without one. Valid until the thread's next failure.
KOLO_API const char* kolo_last_error(void);
// "success", "mismatch", "peer lost", …
KOLO_API const char* kolo_status_name(kolo_status status);
// Bytes of one element; 0 for an unknown type.
KOLO_API size_t kolo_type_size(kolo_type type);
// "0.1.0".
KOLO_API const char* kolo_version(void);
// 1 if this build has the feature, else 0.
KOLO_API int kolo_mpi_built(void);
KOLO_API int kolo_cuda_built(void);
KOLO_API int kolo_nccl_built(void);

// --- Start and end ---

// kolo looks for each field that is left out in the KOLO_ variables and in the launcher's
// environment, as kolo::InitOptions describes.
typedef struct kolo_init_options {
  const char* init_method;  // "env://", "tcp://host:port", "file:///path", "mpi://", …
  int size;                 // number of processes; 0: kolo looks for it and for `rank`
  int rank;                 // 0 … size − 1
  const char* group_name;   // equal on all ranks, or NULL
  const char* backend;      // "nccl" where kolo_nccl_built(); "kolo", NULL: KOLO_OPERATIONS
  int timeout_seconds;      // deadline of each phase of the start; 0: KOLO_INIT_TIMEOUT
  const void* mpi_comm;     // points to the MPI_Comm whose ranks take part; NULL: MPI_COMM_WORLD
} kolo_init_options;

// Collective: finds the other ranks and connects to them. NULL: all options are looked for.
KOLO_API kolo_status kolo_init(const kolo_init_options* options);
// Ends this rank's part, like kolo::shutdown(). Process exit does it too. No effect before
// kolo_init().
KOLO_API kolo_status kolo_shutdown(void);
// Ends the communication of all ranks. They get this rank's number and `reason`.
KOLO_API kolo_status kolo_abort(const char* reason);
// A timeline of a part of a run; see <kolo/timeline.h>.
KOLO_API kolo_status kolo_start_timeline(const char* path);
KOLO_API kolo_status kolo_stop_timeline(void);
KOLO_API int kolo_is_initialized(void);

// --- Elastic jobs (kolo-run --min-np): <kolo/membership.h> has the rules ---

// 1 in an elastic job, 0 elsewhere. −1 before kolo_init().
KOLO_API int kolo_is_elastic(void);
// Number of this world, from 1; 0 for a new process that is still alone. −1 before kolo_init().
KOLO_API int kolo_generation(void);
// How many processes wait for the next world. Call it once on each process, so that the job goes on
// when a rank is lost, and then on rank 0.
KOLO_API kolo_status kolo_newcomers(int* count);
// KOLO_SUCCESS while no rank is lost; else the failure that ended communication in this world.
KOLO_API kolo_status kolo_loss(void);
// After kolo_shutdown(): like kolo_init(), for the next world.
KOLO_API kolo_status kolo_enter_next_world(void);
// The color of a rank of a world with `size` ranks, of which `local_rank` others of its host are
// lower; `host` is its host's number. `context`: as kolo_split_world() got it.
typedef int (*kolo_color)(void* context, int rank, int size, int host, int local_rank);
// Ranks of the same color share a process set, in this world and in each that follows. Sets *set to
// that of this rank. Like kolo::split_world(). The context must last as long as the job.
KOLO_API kolo_status kolo_split_world(kolo_color color, void* context, uint32_t* set);

// Each returns −1 before kolo_init(). kolo_device_ordinal() also returns −1 without a CUDA device.
KOLO_API int kolo_rank(void);
KOLO_API int kolo_size(void);
KOLO_API int kolo_local_rank(void);
KOLO_API int kolo_local_size(void);
KOLO_API int kolo_cross_rank(void);
KOLO_API int kolo_cross_size(void);
KOLO_API int kolo_device_ordinal(void);

// Zeroed memory that the ranks of this host share, like kolo::allocate(): all-reduces on it copy
// nothing. It may be freed after kolo_shutdown(), but not while an operation uses it. kolo_free()
// returns KOLO_ERROR_INVALID_ARGUMENT for memory that kolo_allocate() did not return, and accepts
// NULL.
KOLO_API kolo_status kolo_allocate(size_t bytes, void** memory);
KOLO_API kolo_status kolo_free(void* memory);

// --- Process sets ---

// Collective over the world. `ranks` are ranks of the world, the same on every rank. Sets *set to
// the new set's id.
KOLO_API kolo_status kolo_add_process_set(const int* ranks, int count, uint32_t* set);
KOLO_API kolo_status kolo_remove_process_set(uint32_t set);
// Number of ranks in the set, and this rank's index among them (−1 if it is not a member).
KOLO_API kolo_status kolo_process_set_size(uint32_t set, int* size);
KOLO_API kolo_status kolo_process_set_rank(uint32_t set, int* rank);
// Writes the set's ranks (ranks of the world, ascending) to `ranks`, which has room for all of
// them.
KOLO_API kolo_status kolo_process_set_ranks(uint32_t set, int* ranks);

// --- Works ---

// Blocks until the operation is done and returns the operation's status. An operation on a device
// is done when it is enqueued; its stream then waits for the result.
KOLO_API kolo_status kolo_wait(kolo_work* work);
// Sets *done to 1 if kolo_wait() would not block, else to 0.
KOLO_API kolo_status kolo_test(const kolo_work* work, int* done);
// Output memory that kolo allocated for an operation that has succeeded, and its number of rows (0
// for a gather on ranks other than its root). Freed with the work.
KOLO_API kolo_status kolo_output(const kolo_work* work, void** memory, int64_t* rows);
// Number of rows from each rank of the set, for an allgather, an alltoall, and a gather at its
// root. `count` is the size of the set and the capacity of `splits`.
KOLO_API kolo_status kolo_received_splits(const kolo_work* work, int64_t* splits, int count);
// Number of ranks that were not absent in an allreduce that has succeeded. If it is 0, the output
// is unchanged.
KOLO_API kolo_status kolo_contributors(const kolo_work* work, int* count);
// Frees the handle. An operation that is not done goes on, so its memory must still stay. NULL is
// fine.
KOLO_API void kolo_work_free(kolo_work* work);

// --- Collectives: negotiated by name; ranks may submit them in any order ---
// `shape`: extents, outermost first; a shape without dimensions is one element. Rows are counted by
// the first extent.

// output = op over ranks of input. input == output reduces in place.
KOLO_API kolo_status kolo_allreduce(const void* input, void* output, const int64_t* shape,
                                    int dimensions, kolo_type type, kolo_op op,
                                    const kolo_options* options, kolo_work** work);

typedef struct kolo_member {
  const void* input;
  void* output;
  const int64_t* shape;
  int dimensions;
  kolo_type type;
  const char* name;  // NULL: named after the group
  int absent;
} kolo_member;

// Several all-reduces, all or none, with one work for all of them.
KOLO_API kolo_status kolo_grouped_allreduce(const kolo_member* members, int count, kolo_op op,
                                            const kolo_options* options, kolo_work** work);

// Copies the root's buffer to all ranks; the root is a rank of the world.
KOLO_API kolo_status kolo_broadcast(void* buffer, const int64_t* shape, int dimensions,
                                    kolo_type type, int root, const kolo_options* options,
                                    kolo_work** work);
// Gathers every rank's rows, in rank order, on every rank.
KOLO_API kolo_status kolo_allgather(const void* input, const int64_t* shape, int dimensions,
                                    kolo_type type, const kolo_options* options, kolo_work** work);
// Sends splits[r] rows to rank r of the set. NULL divides the rows evenly.
KOLO_API kolo_status kolo_alltoall(const void* input, const int64_t* shape, int dimensions,
                                   kolo_type type, const int64_t* splits,
                                   const kolo_options* options, kolo_work** work);
// This rank's rows of the reduction. The first `rows mod size` ranks have one more.
KOLO_API kolo_status kolo_reducescatter(const void* input, const int64_t* shape, int dimensions,
                                        kolo_type type, kolo_op op, const kolo_options* options,
                                        kolo_work** work);
// Gathers every rank's rows, in rank order, at the root.
KOLO_API kolo_status kolo_gather(const void* input, const int64_t* shape, int dimensions,
                                 kolo_type type, int root, const kolo_options* options,
                                 kolo_work** work);
// Sends splits[r] of the root's rows to rank r of the set. NULL divides the rows evenly. On the
// other ranks kolo ignores the input, the splits and the number of rows.
KOLO_API kolo_status kolo_scatter(const void* input, const int64_t* shape, int dimensions,
                                  kolo_type type, int root, const int64_t* splits,
                                  const kolo_options* options, kolo_work** work);
KOLO_API kolo_status kolo_barrier(const kolo_options* options, kolo_work** work);
// Declares that this rank has no more work. Returns when all ranks have done so. Sets *last, if
// `last` is not NULL, to the rank that came last.
KOLO_API kolo_status kolo_join(uint32_t set, int* last);

// One message. The n-th send to a rank under a tag meets that rank's n-th receive from this rank
// under the tag; if one is refused for its arguments, the other fails with the reason. Only the
// options process_set, on_device and stream are used.
KOLO_API kolo_status kolo_send(const void* buffer, int64_t count, kolo_type type, int to,
                               uint32_t tag, const kolo_options* options, kolo_work** work);
KOLO_API kolo_status kolo_recv(void* buffer, int64_t count, kolo_type type, int from, uint32_t tag,
                               const kolo_options* options, kolo_work** work);

// --- In-order submission: the same calls in the same order on every rank of the set, blocking ---

KOLO_API kolo_status kolo_allreduce_ordered(const void* input, void* output, int64_t count,
                                            kolo_type type, kolo_op op, uint32_t set);
KOLO_API kolo_status kolo_broadcast_ordered(void* buffer, int64_t count, kolo_type type, int root,
                                            uint32_t set);
// `count` elements of each rank, gathered into size × count elements.
KOLO_API kolo_status kolo_allgather_ordered(const void* input, void* output, int64_t count,
                                            kolo_type type, uint32_t set);
// `count` elements from each rank to each rank. Input and output hold size × count elements.
KOLO_API kolo_status kolo_alltoall_ordered(const void* input, void* output, int64_t count,
                                           kolo_type type, uint32_t set);
// Reduces size × count elements of each rank. This rank gets its `count` elements of the result.
KOLO_API kolo_status kolo_reducescatter_ordered(const void* input, void* output, int64_t count,
                                                kolo_type type, kolo_op op, uint32_t set);
// `count` elements of each rank, gathered into size × count elements of the root.
KOLO_API kolo_status kolo_gather_ordered(const void* input, void* output, int64_t count,
                                         kolo_type type, int root, uint32_t set);
// `count` elements to each rank, from size × count elements of the root.
KOLO_API kolo_status kolo_scatter_ordered(const void* input, void* output, int64_t count,
                                          kolo_type type, int root, uint32_t set);
KOLO_API kolo_status kolo_barrier_ordered(uint32_t set);

#ifdef __cplusplus
}
#endif

// NOLINTEND(readability-identifier-naming)
