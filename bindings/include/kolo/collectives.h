// The collectives on raw, contiguous memory. Included by <kolo/kolo.h>.
//
// All are negotiated by name, so ranks may submit them in any order. What ranks disagree on (the
// kind of operation, shape, type, factors, root) or what a rank passes that cannot work (splits
// that do not add up, a scalar where rows are needed) fails that one operation on every rank, with
// one message that names the tensor, the ranks and both values; kolo stays usable.
//
// Names: the same on every rank, and unique among the operations in flight (else the call throws
// kInvalidArgument). Without a name, the n-th call with one type, shape and operation meets the
// n-th of the other ranks; calls that differ then wait for each other until KOLO_OPERATION_TIMEOUT,
// so names give the better errors.
//
// Under one name the n-th call of a rank meets the n-th of every other rank, and fails on all of
// them or on none. If some ranks give a call up (kTimeout), it has failed on a rank that comes to
// it later, too: kTimeout at once there. That rank's next call meets the others' next. So a rank
// that leaves a call out altogether is one behind from then on.
//
// Rows: what has a first dimension that may differ from rank to rank is counted in rows. Outputs
// whose size the ranks must agree on first come from an Allocator.
//
// CUDA memory: with a stream among the options, all memory of the call (outputs of an Allocator,
// too) is that of this rank's device (kolo::device_ordinal()). The operation starts after what the
// stream was given before the call, and what an Allocator returns is ready after what the stream
// was given until it returned; memory is let go when the device has done with it. Its Work is done
// when everything is handed in to the device: Work::order() then makes a stream wait for the
// result, and the blocking forms do so with the options' stream. All ranks give a stream or none
// does (kMismatch). The ordered door takes host memory.
//
// Threads: any. Errors: functions throw kolo::Exception; an operation's own failure is reported by
// its Work, which the blocking forms throw.
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

/// A handle on some ranks of the world that do collectives of their own, with their own names,
/// concurrently with others. A value; the default one is the world. Roots and peers are ranks of
/// the world in every process set.
class KOLO_API ProcessSet {
 public:
  ProcessSet() = default;
  explicit ProcessSet(std::uint32_t id) : id_(id) {}

  std::uint32_t id() const { return id_; }
  // Each throws kInvalidArgument once the set was removed.
  std::vector<int> ranks() const;  ///< of the world, ascending
  bool contains(int rank) const;   ///< a rank of the world
  int rank() const;                ///< this rank's place among ranks(); −1: it is none of them
  int size() const;

  friend bool operator==(const ProcessSet&, const ProcessSet&) = default;

 private:
  std::uint32_t id_ = 0;
};

/// Collective over the world, whatever the set: every rank names the same ranks. Throws
/// kInvalidArgument if there is a set of these ranks already, or they are no ranks. Ranks that name
/// different ones wait for each other: kTimeout after KOLO_OPERATION_TIMEOUT, on each with the
/// ranks that did not name its own.
KOLO_API ProcessSet add_process_set(const std::vector<int>& ranks);
/// Collective over the world. Throws kInvalidArgument if any rank has operations in flight on it.
/// Its number is never used again.
KOLO_API void remove_process_set(const ProcessSet& set);
/// All that there are, the world first; those of InitOptions come next, in their order.
KOLO_API std::vector<ProcessSet> process_sets();

struct AllreduceOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};
  double prescale = 1.0;   ///< multiplies every rank's input before the reduction
  double postscale = 1.0;  ///< multiplies the result; sums of half types take both as one factor
  /// This rank has nothing to contribute: it takes part with zeros (its input is not read). If no
  /// rank contributes, outputs are left alone and Work::contributors() is 0. An average divides by
  /// all ranks all the same.
  bool absent = false;
  /// Kept until the operation is done, for instance the owner of the memory.
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Memory is this rank's CUDA device's, and is ready after what the stream was given so far;
  /// nothing: it is the host's. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};

struct ReducescatterOptions {
  ReduceOp op = ReduceOp::kSum;
  std::string name = {};
  double prescale = 1.0;
  double postscale = 1.0;
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Memory is this rank's CUDA device's, and is ready after what the stream was given so far;
  /// nothing: it is the host's. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};

struct CollectiveOptions {
  std::string name = {};
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Memory is this rank's CUDA device's, and is ready after what the stream was given so far;
  /// nothing: it is the host's. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};
using BroadcastOptions = CollectiveOptions;

/// Called once, when the ranks have agreed on the shape of this rank's output: returns contiguous
/// memory for it, which must stay until the Work is done. A null pointer or an exception fails this
/// rank's Work with kOutOfMemory, and no other's. Called from the background thread or from a
/// thread that waits for a Work; must not call kolo.
using Allocator = std::function<void*(const Shape& shape)>;

/// Starts output = op over ranks of input; `shape` elements of `type`. The memory must stay until
/// the Work is done; input == output is in place, other overlap is not allowed.
KOLO_API std::shared_ptr<Work> allreduce_async(const void* input, void* output, const Shape& shape,
                                               DataType type, const AllreduceOptions& options = {});
/// The same, blocking. Throws what the Work failed with.
KOLO_API void allreduce(const void* input, void* output, const Shape& shape, DataType type,
                        const AllreduceOptions& options = {});

/// One member of a group: as the arguments of allreduce_async.
struct GroupMember {
  const void* input = nullptr;
  void* output = nullptr;
  Shape shape = {};
  DataType type = DataType::kFloat32;
  /// Of the member, as AllreduceOptions::name; empty: after the group's. Only in groups with a
  /// name.
  std::string name = {};
  bool absent = false;  ///< of this member, as AllreduceOptions::absent
};

/// All or nothing: the members are done once every rank has submitted all of them, and if one fails
/// (ranks disagree, say), all do, with its reason. Work by member, each with its own status. `name`
/// is the group's; its members are called "name/0", "name/1", … Every rank gives the same number
/// of members in the same order. The other grouped operations are alike in this.
KOLO_API std::vector<std::shared_ptr<Work>> grouped_allreduce_async(
    const std::vector<GroupMember>& members, const AllreduceOptions& options = {});
/// Throws what the first member failed with that did; waits for all of them first.
KOLO_API void grouped_allreduce(const std::vector<GroupMember>& members,
                                const AllreduceOptions& options = {});

/// Starts a copy of the root's buffer into every rank's.
KOLO_API std::shared_ptr<Work> broadcast_async(void* buffer, const Shape& shape, DataType type,
                                               int root, const BroadcastOptions& options = {});
KOLO_API void broadcast(void* buffer, const Shape& shape, DataType type, int root,
                        const BroadcastOptions& options = {});

/// Starts the gathering of every rank's rows, in order of rank, on every rank. `shape` is that of
/// this rank's input. Work::received_splits() are the rows of each rank. The output may hold the
/// input, at its place in it.
KOLO_API std::shared_ptr<Work> allgather_async(const void* input, const Shape& shape, DataType type,
                                               Allocator allocate,
                                               const CollectiveOptions& options = {});
KOLO_API void allgather(const void* input, const Shape& shape, DataType type, Allocator allocate,
                        const CollectiveOptions& options = {});

/// Starts the exchange of parts: the first splits[0] rows of the input go to rank 0, and so on; no
/// splits: evenly. The output has the rows from rank 0, then from rank 1, …;
/// Work::received_splits() says how many of each.
KOLO_API std::shared_ptr<Work> alltoall_async(const void* input, const Shape& shape, DataType type,
                                              const std::vector<std::int64_t>& splits,
                                              Allocator allocate,
                                              const CollectiveOptions& options = {});
/// Returns the received splits.
KOLO_API std::vector<std::int64_t> alltoall(const void* input, const Shape& shape, DataType type,
                                            const std::vector<std::int64_t>& splits,
                                            Allocator allocate,
                                            const CollectiveOptions& options = {});

/// Starts output = this rank's rows of the reduction over ranks of inputs of one shape. Rows are
/// dealt as evenly as can be, in order of rank; the first `rows mod size` ranks have one more.
KOLO_API std::shared_ptr<Work> reducescatter_async(const void* input, const Shape& shape,
                                                   DataType type, Allocator allocate,
                                                   const ReducescatterOptions& options = {});
KOLO_API void reducescatter(const void* input, const Shape& shape, DataType type,
                            Allocator allocate, const ReducescatterOptions& options = {});

/// One member of a group: as the arguments of allgather_async and reducescatter_async.
struct RowMember {
  const void* input = nullptr;
  Shape shape = {};
  DataType type = DataType::kFloat32;
  Allocator allocate = {};
};

/// Several allgathers, all or none, as grouped_allreduce_async. (Horovod's grouped_allgather.)
KOLO_API std::vector<std::shared_ptr<Work>> grouped_allgather_async(
    std::vector<RowMember> members, const CollectiveOptions& options = {});
KOLO_API void grouped_allgather(std::vector<RowMember> members,
                                const CollectiveOptions& options = {});
/// Several reducescatters, all or none. (Horovod's grouped_reducescatter.)
KOLO_API std::vector<std::shared_ptr<Work>> grouped_reducescatter_async(
    std::vector<RowMember> members, const ReducescatterOptions& options = {});
KOLO_API void grouped_reducescatter(std::vector<RowMember> members,
                                    const ReducescatterOptions& options = {});

/// As allgather, but the root alone has an output; the others' allocators are called with no rows.
KOLO_API std::shared_ptr<Work> gather_async(const void* input, const Shape& shape, DataType type,
                                            int root, Allocator allocate,
                                            const CollectiveOptions& options = {});
KOLO_API void gather(const void* input, const Shape& shape, DataType type, int root,
                     Allocator allocate, const CollectiveOptions& options = {});

/// Starts the dealing of the root's rows: splits[r] of them to rank r; no splits: evenly. Of the
/// other ranks' `shape` the rows do not matter, and their splits and input are not read.
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

/// Whether `mine` is true on some rank: the same answer on every rank.
///   if (kolo::any(out_of_time)) break;  // every rank leaves, in the same step
/// Every rank calls it equally often, from one thread at a time. One number a rank travels, as in
/// an allreduce of one element, and a rank that has joined does not count.
KOLO_API bool any(bool mine, const ProcessSet& set = {});
/// Whether `mine` is true on every rank; else as any().
KOLO_API bool all(bool mine, const ProcessSet& set = {});

/// Says that this rank has no more work (its data has run out), and waits until every rank has said
/// so; returns the rank that came last, which has seen all of the others' work. Until then this
/// rank takes part with zeros in every allreduce of the others by sum or average. An average
/// divides by the number of ranks that have not joined; all other operations of the others fail
/// with kInvalidArgument. An ordered call of theirs is begun without asking: it fails so on all
/// ranks, and ends communication. (Horovod's join; the average is over those that took part.)
/// When those that have not joined submit nothing either, rank 0 warns after KOLO_STALL_WARNING,
/// and after KOLO_OPERATION_TIMEOUT join() throws kTimeout, which names them.
KOLO_API int join(const ProcessSet& set = {});

struct MessageOptions {
  std::uint32_t tag = 0;
  std::shared_ptr<const void> keep_alive = {};
  ProcessSet process_set = {};
  /// Memory is this rank's CUDA device's, and is ready after what the stream was given so far;
  /// nothing: it is the host's. See "CUDA memory" above.
  std::optional<CudaStream> stream = {};
};

/// One message from this rank to another, who receives it. The n-th send to a rank under a tag
/// meets the n-th receive there from this rank under it; if they differ in count, type or whose
/// memory it is (the host's or a device's), both fail with kMismatch. The memory must stay until
/// the Work is done, which is when the receiver has it.
KOLO_API std::shared_ptr<Work> send_async(const void* buffer, std::int64_t count, DataType type,
                                          int to, const MessageOptions& options = {});
KOLO_API void send(const void* buffer, std::int64_t count, DataType type, int to,
                   const MessageOptions& options = {});
KOLO_API std::shared_ptr<Work> recv_async(void* buffer, std::int64_t count, DataType type, int from,
                                          const MessageOptions& options = {});
KOLO_API void recv(void* buffer, std::int64_t count, DataType type, int from,
                   const MessageOptions& options = {});

// The ordered door: blocking collectives without negotiation. All ranks of a process set make the
// same ordered calls on it (kind, count, type, op, root) in the same order, from one thread at a
// time. Ranks that are out of step get kMismatch with both calls: across hosts perhaps some seconds
// later, and after a call that has returned already where it needed nothing of the others. A rank
// whose call fails at once for its arguments, where the others' do not, is out of step. Up to
// 128 KiB on one host (an allgather's output; all-reduces of kolo::allocate(): 4 MiB) a call is an
// exchange over shared memory in the caller's thread; KOLO_ALGORITHM may take all-reduces out.

/// `count` elements each; the input may be the output.
KOLO_API void allreduce_ordered(const void* input, void* output, std::int64_t count, DataType type,
                                ReduceOp op, const ProcessSet& set = {});
/// The root's `count` elements to all; the root is a rank of the world. It may return before others
/// have called it, until some 64 MiB of such calls wait for them.
KOLO_API void broadcast_ordered(void* buffer, std::int64_t count, DataType type, int root,
                                const ProcessSet& set = {});
/// `count` elements of each rank, end to end in order of rank; the input may lie in its place.
KOLO_API void allgather_ordered(const void* input, void* output, std::int64_t count, DataType type,
                                const ProcessSet& set = {});
/// `count` elements from each rank to each: input and output hold size × count.
KOLO_API void alltoall_ordered(const void* input, void* output, std::int64_t count, DataType type,
                               const ProcessSet& set = {});
/// The sum of all inputs of size × count elements; each rank gets `count` of it, in order of rank.
KOLO_API void reducescatter_ordered(const void* input, void* output, std::int64_t count,
                                    DataType type, ReduceOp op, const ProcessSet& set = {});
/// Returns when all ranks have called it.
KOLO_API void barrier_ordered(const ProcessSet& set = {});

}  // namespace kolo
