// kolo for C and for all that calls C (Fortran, Rust, C#, Java, Python's ctypes): the core
// interface of <kolo/kolo.h> and <kolo/collectives.h>, whose words on names, process sets, joins,
// devices and the ordered door hold here too. docs/c_api.md shows it at work.
//
// Status: what can fail returns a kolo_status; kolo_last_error() has the message of the failure
// that the calling thread had last. No exception leaves a function. Structs: all zero is the
// default of every field, so `kolo_options options = {0};` and a memset do. Works: where `work` is
// NULL a call blocks until its operation is done, and returns what it ended with. Else it starts it
// and gives a handle, which is to be waited for, asked and freed; the call then returns only what
// is wrong with the call, and *work is NULL if anything is. Enumerations are int32_t, so that every
// language has them; numbers that mean nothing are refused. Memory of an operation must stay until
// it is done. Threads: any thread may call anything.
#pragma once

#include <kolo/export.h>

#include <stddef.h>
#include <stdint.h>

// NOLINTBEGIN(readability-identifier-naming)

#ifdef __cplusplus
extern "C" {
#endif

// How a call ended; the errors are those of kolo::ErrorCode.
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

// Returns memory for an output of `dimensions` extents, outermost first, which must stay until the
// operation is done; NULL fails it on this rank. Called once, perhaps from a thread of kolo's; must
// not call kolo.
typedef void* (*kolo_allocator)(void* context, const int64_t* shape, int dimensions);

typedef struct kolo_options {
  const char* name;      // the same on every rank, unique among those in flight; NULL: none
  uint32_t process_set;  // 0: the world
  double prescale;       // of reductions: multiplies every input; 0 stands for 1
  double postscale;      // of reductions: multiplies the result; 0 stands for 1
  int absent;            // of allreduce: this rank takes part with zeros
  int on_device;         // not 0: all memory is this rank's CUDA device's, ready after `stream`
  void* stream;          // the cudaStream_t of on_device
  // Of outputs whose size the ranks agree on; needed on_device and where `work` is NULL. NULL: kolo
  // allocates host memory, kolo_output() says where, and it is freed with the work.
  kolo_allocator allocate;
  void* context;  // what `allocate` gets
} kolo_options;

// The message of the last failure of this thread, "" without one; until its next.
KOLO_API const char* kolo_last_error(void);
// "success", "mismatch", "peer lost", …
KOLO_API const char* kolo_status_name(kolo_status status);
// Bytes of one element; 0: there is no such type.
KOLO_API size_t kolo_type_size(kolo_type type);
// "0.1.0".
KOLO_API const char* kolo_version(void);
// Whether this build has them: 1 or 0.
KOLO_API int kolo_mpi_built(void);
KOLO_API int kolo_cuda_built(void);
KOLO_API int kolo_nccl_built(void);

// --- Start and end ---

// What is left out is looked for in KOLO_ variables and in what started the process, as
// kolo::InitOptions says.
typedef struct kolo_init_options {
  const char* init_method;  // "env://", "tcp://host:port", "file:///path", "mpi://", …
  int size;                 // number of processes; 0: looked for, and `rank` with it
  int rank;                 // 0 … size − 1
  const char* group_name;   // the same on all ranks, or NULL
  const char* backend;      // "nccl" where kolo_nccl_built(); "kolo", NULL: KOLO_OPERATIONS
  int timeout_seconds;      // of each phase of the start; 0: KOLO_INIT_TIMEOUT
  const void* mpi_comm;     // points to the MPI_Comm whose ranks take part; NULL: MPI_COMM_WORLD
} kolo_init_options;

// Collective: finds the other ranks and connects to them. NULL: all is looked for.
KOLO_API kolo_status kolo_init(const kolo_init_options* options);
// Ends this rank's part, as kolo::shutdown(); also done at exit. Without effect before kolo_init().
KOLO_API kolo_status kolo_shutdown(void);
// Ends the communication of all ranks, which get this rank's number and `reason`.
KOLO_API kolo_status kolo_abort(const char* reason);
KOLO_API int kolo_is_initialized(void);

// Each is −1 before kolo_init(). kolo_device_ordinal(): also without a CUDA device.
KOLO_API int kolo_rank(void);
KOLO_API int kolo_size(void);
KOLO_API int kolo_local_rank(void);
KOLO_API int kolo_local_size(void);
KOLO_API int kolo_cross_rank(void);
KOLO_API int kolo_cross_size(void);
KOLO_API int kolo_device_ordinal(void);

// Memory that the ranks of this host share, as kolo::allocate(): all-reduces copy nothing of it.
// Zeroed; may be freed after kolo_shutdown(). kolo_free(): not while an operation uses it;
// KOLO_ERROR_INVALID_ARGUMENT for memory that is not of kolo_allocate(); NULL is fine.
KOLO_API kolo_status kolo_allocate(size_t bytes, void** memory);
KOLO_API kolo_status kolo_free(void* memory);

// --- Process sets ---

// Collective over the world: ranks of the world, the same on every rank; *set gets the number.
KOLO_API kolo_status kolo_add_process_set(const int* ranks, int count, uint32_t* set);
KOLO_API kolo_status kolo_remove_process_set(uint32_t set);
// How many ranks it has, and which place this rank has among them (−1: none).
KOLO_API kolo_status kolo_process_set_size(uint32_t set, int* size);
KOLO_API kolo_status kolo_process_set_rank(uint32_t set, int* rank);
// Its ranks of the world, ascending, into memory for as many as it has.
KOLO_API kolo_status kolo_process_set_ranks(uint32_t set, int* ranks);

// --- Works ---

// Blocks until the operation is done; returns what it ended with. One on a device is done when it
// is handed in: its stream then goes on after the result.
KOLO_API kolo_status kolo_wait(kolo_work* work);
// *done: 1 if kolo_wait() would not block, else 0.
KOLO_API kolo_status kolo_test(const kolo_work* work, int* done);
// The output of an operation that has succeeded and that allocated for itself, and its rows (of a
// gather elsewhere than at its root: none). Freed with the work.
KOLO_API kolo_status kolo_output(const kolo_work* work, void** memory, int64_t* rows);
// Rows that came from each rank of the set, of an allgather, an alltoall, and a gather at its root;
// `count` is the size of the set, and the room in `splits`.
KOLO_API kolo_status kolo_received_splits(const kolo_work* work, int64_t* splits, int count);
// Ranks that were not absent in an allreduce that has succeeded; if there were none, its output was
// left alone.
KOLO_API kolo_status kolo_contributors(const kolo_work* work, int* count);
// An operation that is not done goes on: its memory must stay, also after this. NULL is fine.
KOLO_API void kolo_work_free(kolo_work* work);

// --- Collectives: negotiated by name, in any order on the ranks ---
// `shape`: extents, outermost first; no dimensions are one element. Rows are the first extent.

// output = op over ranks of input; input == output is in place.
KOLO_API kolo_status kolo_allreduce(const void* input, void* output, const int64_t* shape,
                                    int dimensions, kolo_type type, kolo_op op,
                                    const kolo_options* options, kolo_work** work);

typedef struct kolo_member {
  const void* input;
  void* output;
  const int64_t* shape;
  int dimensions;
  kolo_type type;
  const char* name;  // NULL: after the group's
  int absent;
} kolo_member;

// Several all-reduces, all or none, with one work for all of them.
KOLO_API kolo_status kolo_grouped_allreduce(const kolo_member* members, int count, kolo_op op,
                                            const kolo_options* options, kolo_work** work);

// The root's buffer to all; the root is a rank of the world.
KOLO_API kolo_status kolo_broadcast(void* buffer, const int64_t* shape, int dimensions,
                                    kolo_type type, int root, const kolo_options* options,
                                    kolo_work** work);
// Every rank's rows, in order of rank, on every rank.
KOLO_API kolo_status kolo_allgather(const void* input, const int64_t* shape, int dimensions,
                                    kolo_type type, const kolo_options* options, kolo_work** work);
// splits[r] rows to rank r of the set; NULL: evenly.
KOLO_API kolo_status kolo_alltoall(const void* input, const int64_t* shape, int dimensions,
                                   kolo_type type, const int64_t* splits,
                                   const kolo_options* options, kolo_work** work);
// This rank's rows of the reduction; the first `rows mod size` ranks have one more.
KOLO_API kolo_status kolo_reducescatter(const void* input, const int64_t* shape, int dimensions,
                                        kolo_type type, kolo_op op, const kolo_options* options,
                                        kolo_work** work);
// Every rank's rows, in order of rank, at the root.
KOLO_API kolo_status kolo_gather(const void* input, const int64_t* shape, int dimensions,
                                 kolo_type type, int root, const kolo_options* options,
                                 kolo_work** work);
// splits[r] of the root's rows to rank r of the set; NULL: evenly. Elsewhere than at the root
// input, splits and the number of rows are not read.
KOLO_API kolo_status kolo_scatter(const void* input, const int64_t* shape, int dimensions,
                                  kolo_type type, int root, const int64_t* splits,
                                  const kolo_options* options, kolo_work** work);
KOLO_API kolo_status kolo_barrier(const kolo_options* options, kolo_work** work);
// This rank has no more work; returns when none has. *last, if not NULL: the rank that came last.
KOLO_API kolo_status kolo_join(uint32_t set, int* last);

// One message; the n-th to a rank under a tag meets the n-th receive there from this rank under it.
// Of the options, process_set, on_device and stream count.
KOLO_API kolo_status kolo_send(const void* buffer, int64_t count, kolo_type type, int to,
                               uint32_t tag, const kolo_options* options, kolo_work** work);
KOLO_API kolo_status kolo_recv(void* buffer, int64_t count, kolo_type type, int from, uint32_t tag,
                               const kolo_options* options, kolo_work** work);

// --- The ordered door: the same calls in the same order on every rank of the set, blocking ---

KOLO_API kolo_status kolo_allreduce_ordered(const void* input, void* output, int64_t count,
                                            kolo_type type, kolo_op op, uint32_t set);
KOLO_API kolo_status kolo_broadcast_ordered(void* buffer, int64_t count, kolo_type type, int root,
                                            uint32_t set);
// `count` elements of each rank into size × count.
KOLO_API kolo_status kolo_allgather_ordered(const void* input, void* output, int64_t count,
                                            kolo_type type, uint32_t set);
// `count` elements from each rank to each: both hold size × count.
KOLO_API kolo_status kolo_alltoall_ordered(const void* input, void* output, int64_t count,
                                           kolo_type type, uint32_t set);
// Of size × count elements of each rank, the `count` reduced ones of this rank.
KOLO_API kolo_status kolo_reducescatter_ordered(const void* input, void* output, int64_t count,
                                                kolo_type type, kolo_op op, uint32_t set);
KOLO_API kolo_status kolo_barrier_ordered(uint32_t set);

#ifdef __cplusplus
}
#endif

// NOLINTEND(readability-identifier-naming)
