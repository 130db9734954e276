// The collectives on raw, contiguous memory. Included by <kolo/kolo.h>.
//
//   float sums[2] = {1.0F, 2.0F};
//   auto work = kolo::allreduce_async(sums, sums, {2}, kolo::DataType::kFloat32, {.name = "sums"});
//   // … compute …
//   kolo::synchronize(*work);
//
// - Negotiation: collectives are negotiated by name, so ranks may submit them in any order.
//   In-order submission (below) goes without.
// - Disagreement: if ranks disagree (on kind, shape, type, factors or root), or one passes
//   arguments that cannot work (splits that do not add up, a scalar where rows are needed), only
//   that operation fails. It fails on every rank, with one message that names the tensor, the ranks
//   and both values. kolo stays usable.
// - Names: use the same name on every rank. A name must be unique among the operations in flight,
//   else the call throws kInvalidArgument.
// - No name: the n-th call with one type, shape and operation meets the n-th such call of the other
//   ranks. Calls that differ wait for each other until KOLO_OPERATION_TIMEOUT, so names give better
//   errors.
// - Order under one name: a rank's n-th call meets the n-th of every other rank, and fails on all
//   of them or on none. If some ranks give a call up (kTimeout), a rank that comes to it later gets
//   kTimeout at once. Its next call meets the others' next call. So a rank that leaves a call out
//   stays one call behind.
// - Rows: a row is one index of the first dimension, which may differ between ranks in some
//   collectives. An Allocator provides outputs whose size the ranks must agree on first.
// - Threads: any.
// - Errors: functions throw kolo::Exception. The failure of an operation is reported by its Work;
//   the blocking forms throw it.
//
// CUDA memory: with a stream among the options,
// - all memory of the call, including the outputs of an Allocator, is on this rank's device
//   (kolo::device_ordinal());
// - the operation starts after the work that the stream had been given before the call;
// - memory from an Allocator is ready after the work that the stream had been given until the
//   Allocator returned;
// - kolo releases the memory when the device has finished with it;
// - the Work is done when everything is enqueued on the device. Work::order() then makes a stream
//   wait for the result; the blocking forms do so with the options' stream;
// - all ranks give a stream or none does (kMismatch). In-order submission takes host memory only.
#pragma once

#include <kolo/error.h>
#include <kolo/export.h>
#include <kolo/types.h>
#include <kolo/work.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

/// A handle on some ranks of the world, which run their own collectives concurrently with others:
///
///   const kolo::ProcessSet even = kolo::add_process_set({0, 2});  // called by every rank
///   if (even.contains(kolo::rank()))
///     kolo::allreduce(values, values, {8}, kolo::DataType::kFloat32, {.process_set = even});
///
/// - It is a value. The default is the world.
/// - Names are separate in each process set.
/// - Roots and peers are ranks of the world in every process set.
class KOLO_API ProcessSet {
 public:
  ProcessSet() = default;
  explicit ProcessSet(std::uint32_t id) : id_(id) {}

  std::uint32_t id() const { return id_; }
  // Each throws kInvalidArgument after the set was removed.
  std::vector<int> ranks() const;  ///< ranks of the world, ascending
  bool contains(int rank) const;   ///< `rank` is a rank of the world
  int rank() const;                ///< this rank's index in ranks(); −1 if it is not a member
  int size() const;

  friend bool operator==(const ProcessSet&, const ProcessSet&) = default;

 private:
  std::uint32_t id_ = 0;
};

/// Collective over the world, whichever ranks the set has: every rank names the same ranks. Throws
/// kInvalidArgument if these ranks have a set already or are not ranks of the world. Ranks that
/// name different sets wait for each other. Each then throws kTimeout after KOLO_OPERATION_TIMEOUT
/// and lists the ranks that did not name its set.
KOLO_API ProcessSet add_process_set(const std::vector<int>& ranks);
/// Collective over the world. Throws kInvalidArgument if any rank has operations in flight on the
/// set. kolo never reuses the set's id.
KOLO_API void remove_process_set(const ProcessSet& set);
/// All process sets: first the world, then those of InitOptions in their order, then the added
/// ones.
KOLO_API std::vector<ProcessSet> process_sets();

struct AllreduceOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};
  /// Multiplies every rank's input before the reduction, where integers truncate toward zero.
  double prescale = 1.0;
  double postscale = 1.0;  ///< multiplies the result; sums of half types combine both factors
  /// This rank has nothing to contribute. It takes part with zeros, and its input is not read. An
  /// average still counts this rank. If no rank contributes, outputs stay unchanged and
  /// Work::contributors() is 0.
  bool absent = false;
  /// Kept until the operation is done. Typically the owner of the memory.
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Set: memory is on this rank's CUDA device and is ready after the stream's work so far. Not
  /// set: memory is on the host. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};

struct ReducescatterOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};
  double prescale = 1.0;
  double postscale = 1.0;
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Set: memory is on this rank's CUDA device and is ready after the stream's work so far. Not
  /// set: memory is on the host. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};

struct CollectiveOptions {
  std::string name = {};
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Set: memory is on this rank's CUDA device and is ready after the stream's work so far. Not
  /// set: memory is on the host. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};
using BroadcastOptions = CollectiveOptions;

/// Returns contiguous memory for this rank's output, which must stay until the Work is done. kolo
/// calls it once, when the ranks have agreed on the output's shape. The call comes from the
/// background thread or from a thread that waits for a Work. It must not call kolo. A null pointer
/// or an exception fails only this rank's Work, with kOutOfMemory.
using Allocator = std::function<void*(const Shape& shape)>;

/// Starts output = op over ranks of input, with `shape` elements of `type`. The memory must stay
/// until the Work is done. input == output reduces in place; other overlap is not allowed.
KOLO_API std::shared_ptr<Work> allreduce_async(const void* input, void* output, const Shape& shape,
                                               DataType type, const AllreduceOptions& options = {});
/// Blocks until the all-reduce is done. Throws the failure of its Work.
KOLO_API void allreduce(const void* input, void* output, const Shape& shape, DataType type,
                        const AllreduceOptions& options = {});

/// One member of a group, with the arguments of allreduce_async.
struct GroupMember {
  const void* input = nullptr;
  void* output = nullptr;
  Shape shape = {};
  DataType type = DataType::kFloat32;
  /// Name of the member, as AllreduceOptions::name. Empty: named after the group. Only in groups
  /// that have a name.
  std::string name = {};
  bool absent =
      false;  ///< this rank contributes zeros for this member, as AllreduceOptions::absent
};

/// Starts a group of all-reduces, all or none. Returns one Work a member, each with its own status.
/// The other grouped operations follow the same rules:
/// - The members are done once every rank has submitted all of them.
/// - If one member fails, for instance because ranks disagree, all fail with its reason.
/// - `name` is the group's name; members are called "name/0", "name/1", …
/// - Every rank passes the same number of members in the same order.
KOLO_API std::vector<std::shared_ptr<Work>> grouped_allreduce_async(
    const std::vector<GroupMember>& members, const AllreduceOptions& options = {});
/// Waits for all members. Then throws the failure of the first member that failed.
KOLO_API void grouped_allreduce(const std::vector<GroupMember>& members,
                                const AllreduceOptions& options = {});

/// Starts a copy of the root's buffer into every rank's buffer.
KOLO_API std::shared_ptr<Work> broadcast_async(void* buffer, const Shape& shape, DataType type,
                                               int root, const BroadcastOptions& options = {});
KOLO_API void broadcast(void* buffer, const Shape& shape, DataType type, int root,
                        const BroadcastOptions& options = {});

/// Starts gathering every rank's rows, in rank order, on every rank. `shape` is the shape of this
/// rank's input. Work::received_splits() has the number of rows of each rank. The output may
/// contain the input, at this rank's position.
KOLO_API std::shared_ptr<Work> allgather_async(const void* input, const Shape& shape, DataType type,
                                               Allocator allocate,
                                               const CollectiveOptions& options = {});
KOLO_API void allgather(const void* input, const Shape& shape, DataType type, Allocator allocate,
                        const CollectiveOptions& options = {});

/// Starts the exchange of parts: the first splits[0] rows of the input go to rank 0, and so on.
/// Without splits the rows are divided evenly. The output has the rows from rank 0, then from rank
/// 1, …; Work::received_splits() has the number from each rank.
KOLO_API std::shared_ptr<Work> alltoall_async(const void* input, const Shape& shape, DataType type,
                                              const std::vector<std::int64_t>& splits,
                                              Allocator allocate,
                                              const CollectiveOptions& options = {});
/// Returns the received splits.
KOLO_API std::vector<std::int64_t> alltoall(const void* input, const Shape& shape, DataType type,
                                            const std::vector<std::int64_t>& splits,
                                            Allocator allocate,
                                            const CollectiveOptions& options = {});

/// Starts output = this rank's rows of the reduction over ranks. All inputs have one shape. Rows
/// are divided as evenly as possible in rank order; the first `rows mod size` ranks have one more.
KOLO_API std::shared_ptr<Work> reducescatter_async(const void* input, const Shape& shape,
                                                   DataType type, Allocator allocate,
                                                   const ReducescatterOptions& options = {});
KOLO_API void reducescatter(const void* input, const Shape& shape, DataType type,
                            Allocator allocate, const ReducescatterOptions& options = {});

/// One member of a group, with the arguments of allgather_async and reducescatter_async.
struct RowMember {
  const void* input = nullptr;
  Shape shape = {};
  DataType type = DataType::kFloat32;
  Allocator allocate = {};
};

/// Several allgathers, all or none, like grouped_allreduce_async. (Horovod's grouped_allgather.)
KOLO_API std::vector<std::shared_ptr<Work>> grouped_allgather_async(
    std::vector<RowMember> members, const CollectiveOptions& options = {});
KOLO_API void grouped_allgather(std::vector<RowMember> members,
                                const CollectiveOptions& options = {});
/// Several reducescatters, all or none. (Horovod's grouped_reducescatter.)
KOLO_API std::vector<std::shared_ptr<Work>> grouped_reducescatter_async(
    std::vector<RowMember> members, const ReducescatterOptions& options = {});
KOLO_API void grouped_reducescatter(std::vector<RowMember> members,
                                    const ReducescatterOptions& options = {});

/// Like allgather, but only the root has an output. kolo calls the other ranks' allocators with
/// zero rows.
KOLO_API std::shared_ptr<Work> gather_async(const void* input, const Shape& shape, DataType type,
                                            int root, Allocator allocate,
                                            const CollectiveOptions& options = {});
KOLO_API void gather(const void* input, const Shape& shape, DataType type, int root,
                     Allocator allocate, const CollectiveOptions& options = {});

/// Starts the distribution of the root's rows: splits[r] of them go to rank r. Without splits the
/// rows are divided evenly. On the other ranks kolo ignores the number of rows in `shape`, the
/// splits and the input.
KOLO_API std::shared_ptr<Work> scatter_async(const void* input, const Shape& shape, DataType type,
                                             int root, const std::vector<std::int64_t>& splits,
                                             Allocator allocate,
                                             const CollectiveOptions& options = {});
KOLO_API void scatter(const void* input, const Shape& shape, DataType type, int root,
                      const std::vector<std::int64_t>& splits, Allocator allocate,
                      const CollectiveOptions& options = {});

/// Done when every rank has called it.
KOLO_API std::shared_ptr<Work> barrier_async(const CollectiveOptions& options = {});
KOLO_API void barrier(const CollectiveOptions& options = {});

/// Whether `mine` is true on some rank. Every rank gets the same answer.
///
///   if (kolo::any(out_of_time)) break;  // every rank leaves, in the same step
///
/// Every rank calls it equally often, from one thread at a time. It costs an all-reduce of one
/// element. A rank that has joined does not count.
KOLO_API bool any(bool mine, const ProcessSet& set = {});
/// Whether `mine` is true on every rank. The rules of any() hold.
KOLO_API bool all(bool mine, const ProcessSet& set = {});

/// Declares that this rank has no more work, for instance because its data has run out. Waits until
/// every rank has done so. Returns the rank that came last, which has seen all of the others' work.
/// (Horovod's join, but an average is over the ranks that have not joined.)
/// - Until then this rank contributes zeros to every allreduce by sum or average of the others.
/// - An average divides by the number of ranks that have not joined.
/// - All other operations of the others fail with kInvalidArgument. In-order calls start without
///   negotiation, so such a call fails on all ranks and ends communication.
/// - If the ranks that have not joined submit nothing, rank 0 warns after KOLO_STALL_WARNING. After
///   KOLO_OPERATION_TIMEOUT, join() throws kTimeout and names these ranks.
KOLO_API int join(const ProcessSet& set = {});

struct MessageOptions {
  std::uint32_t tag = 0;
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Set: memory is on this rank's CUDA device and is ready after the stream's work so far. Not
  /// set: memory is on the host. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};

/// Sends one message to rank `to`, which must receive it. The n-th send to a rank under a tag meets
/// that rank's n-th receive from this rank under the tag. Both fail with kMismatch if they differ
/// in count, type or kind of memory (host or device), or with the reason if one call throws for its
/// arguments. The memory must stay until the Work is done, when the receiver has the message.
KOLO_API std::shared_ptr<Work> send_async(const void* buffer, std::int64_t count, DataType type,
                                          int to, const MessageOptions& options = {});
KOLO_API void send(const void* buffer, std::int64_t count, DataType type, int to,
                   const MessageOptions& options = {});
KOLO_API std::shared_ptr<Work> recv_async(void* buffer, std::int64_t count, DataType type, int from,
                                          const MessageOptions& options = {});
KOLO_API void recv(void* buffer, std::int64_t count, DataType type, int from,
                   const MessageOptions& options = {});

// In-order submission: blocking collectives without negotiation.
// - All ranks of a process set make the same ordered calls on it (kind, count, type, op, root), in
//   the same order, from one thread at a time.
// - Ranks that are out of step get kMismatch with both calls. Across hosts the error may come some
//   seconds later. It may also come after a call has returned that needed nothing from the others.
// - A rank is also out of step if only its call fails at once because of its arguments.
// - A call of up to 128 KiB on one host is an exchange over shared memory in the caller's thread.
//   The limit applies to a rank's input; for all-reduces of kolo::allocate() memory it is 4 MiB.
//   KOLO_ALGORITHM may exclude all-reduces.
// - The root of a broadcast or scatter, and all but the root of a gather, may return before the
//   others have made the call, while at most some 64 MiB of such calls are pending.

/// Reduces `count` elements of each rank. The input may be the output.
KOLO_API void allreduce_ordered(const void* input, void* output, std::int64_t count, DataType type,
                                ReduceOp op, const ProcessSet& set = {});
/// Copies the root's `count` elements to all; a root is a rank of the world.
KOLO_API void broadcast_ordered(void* buffer, std::int64_t count, DataType type, int root,
                                const ProcessSet& set = {});
/// Gathers `count` elements of each rank, in rank order. The input may lie at this rank's position
/// in the output.
KOLO_API void allgather_ordered(const void* input, void* output, std::int64_t count, DataType type,
                                const ProcessSet& set = {});
/// Sends `count` elements from each rank to each rank. Input and output hold size × count elements.
KOLO_API void alltoall_ordered(const void* input, void* output, std::int64_t count, DataType type,
                               const ProcessSet& set = {});
/// Reduces inputs of size × count elements by `op`. Each rank gets `count` elements of the result,
/// in rank order.
KOLO_API void reducescatter_ordered(const void* input, void* output, std::int64_t count,
                                    DataType type, ReduceOp op, const ProcessSet& set = {});
/// Gathers `count` elements of each rank on the root, in rank order. The other ranks' output is
/// ignored. The root's input may lie at its position in the output.
KOLO_API void gather_ordered(const void* input, void* output, std::int64_t count, DataType type,
                             int root, const ProcessSet& set = {});
/// Sends `count` elements of the root's input of size × count elements to each rank, in rank order.
/// The other ranks' input is ignored. The root's output may lie at its position in the input.
KOLO_API void scatter_ordered(const void* input, void* output, std::int64_t count, DataType type,
                              int root, const ProcessSet& set = {});
/// Returns when all ranks have called it.
KOLO_API void barrier_ordered(const ProcessSet& set = {});

}  // namespace kolo
