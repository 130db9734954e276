// Entry: one submitted operation on its way through the stages. The table passes it to the
// controller, the controller to the operation that runs it. Stages pass an EntryPtr: copying about
// 400 bytes at each stage would cost a step of many tensors more than their negotiation.
#pragma once

#include "runtime/base/operation_kind.h"
#include "runtime/base/recycled.h"

#include <kolo/types.h>
#include <kolo/work.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

class DeviceEvent;

/// The fields that all ranks must agree on under one name.
struct Signature {
  OperationKind kind = OperationKind::kAllreduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape = {};        ///< shape of one row for a row-wise kind
  bool on_device = false;  ///< the memory is each rank's accelerator's
  std::string group = {};  ///< this operation's group, and its number of members
  int group_size = 0;

  std::uint64_t elements() const { return static_cast<std::uint64_t>(element_count(shape)); }
  std::uint64_t bytes() const { return elements() * size_of(type); }
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// Signature::root of a kAddProcessSet that only the set's own ranks announce.
constexpr int kByItsRanks = 1;
/// Whether only the ranks of the signature's shape announce the call: so is a kRemoveProcessSet
/// that names them.
inline bool is_by_its_ranks(const Signature& signature) {
  return (signature.kind == OperationKind::kAddProcessSet && signature.root == kByItsRanks) ||
         (signature.kind == OperationKind::kRemoveProcessSet && !signature.shape.empty());
}

/// Signature::root of a kReceive that takes the first message of its tag; once it has met one, the
/// sender.
constexpr int kAnyRank = std::numeric_limits<int>::min();

/// Weight of a tensor's bytes for batching and fusion (KOLO_BATCH_SIZE, KOLO_FUSION_MAX_TENSOR). A
/// device moves kDeviceBytes times as many bytes while an operation on it starts.
constexpr std::uint64_t kDeviceBytes = 8;
constexpr std::uint64_t weight_of(std::uint64_t bytes, bool on_device) {
  return on_device ? bytes / kDeviceBytes : bytes;
}

/// The first field in which two signatures differ, as a word and both values ("shape", "[2]",
/// "[3]"). Precondition: a != b.
struct SignatureDifference {
  std::string_view field;
  std::string a;
  std::string b;
};
SignatureDifference difference(const Signature& a, const Signature& b);

/// Rows of a row-wise operation. Allgather and gather: this rank's rows (one number). Alltoall: the
/// rows that it sends to each rank. Scatter: the same at the root, empty on other ranks.
using Splits = std::vector<std::int64_t>;
/// The splits of all ranks, one rank's after the other's; a scatter's are the root's alone. One
/// number if all are equal. Empty for a kind that is not row-wise. See split_table.h.
using SplitTable = std::vector<std::int64_t>;

/// Allocates an output whose shape is known only after the agreement. The progress token holder
/// calls it. Null: there is no memory; then only this Work fails, with kOutOfMemory.
using Allocate = std::function<std::byte*(const Shape& shape)>;

/// One call of a user.
struct Submission {
  std::string name;       ///< empty: named by the order of calls
  bool by_order = false;  ///< without a name: the n-th of its kind, whatever its signature
  Signature signature;    ///< before prepare(): with the shape of this rank's whole input
  const std::byte* input = nullptr;  ///< contiguous
  std::byte* output = nullptr;
  bool absent = false;  ///< contributes zeros; input is not read
  Splits splits = {};   ///< empty: even, where each rank may have its own
  /// What is wrong with this rank's call. The call is announced all the same, so that no rank waits
  /// for another. It fails with this sentence on all ranks.
  std::string complaint = {};
  Allocate allocate = {};
  std::uint32_t tag = 0;   ///< for kSend and kReceive
  std::uint64_t step = 0;  ///< step of the caller that the call belongs to; 0: not stated
  std::shared_ptr<const void> keep_alive;
  std::uint32_t process_set = 0;
  bool will_wait = false;  ///< the caller waits for the Work at once
  /// The name of what lies at an element of the input, if the caller has packed several tensors.
  std::function<std::string(std::uint64_t element)> part_at = {};
  bool dropped = false;  ///< nobody has the Work: a refusal that only tells the other ranks
  /// For accelerator memory: the caller's stream. Memory from `allocate` is ready after the work
  /// that is enqueued on the stream by then, because a stream-ordered allocator may return memory
  /// that its stream still uses.
  std::optional<CudaStream> stream = {};
};

/// A submission on its way through the stages.
struct Entry : Submission {
  std::shared_ptr<Work> work;  ///< null: this rank has joined and contributes zeros
  /// For accelerator memory: the event after which the memory is ready.
  std::shared_ptr<const DeviceEvent> ready = {};
  std::chrono::steady_clock::time_point submitted_at = {};
  /// For the timeline, if there is one: when the cycle drained the entry, when all ranks agreed on
  /// it, and when it started.
  std::chrono::steady_clock::time_point drained_at = {};
  std::chrono::steady_clock::time_point agreed_at = {};
  std::chrono::steady_clock::time_point started_at = {};
  std::uint64_t record = 0;  ///< in the flight recorder; 0: none

  static void* operator new(std::size_t) { return Recycled<Entry>().allocate(1); }
  static void operator delete(void* entry) {
    Recycled<Entry>().deallocate(static_cast<Entry*>(entry), 1);
  }

  /// Bytes of the input, as far as this rank knows them.
  std::uint64_t bytes() const;
  std::uint64_t weight() const { return weight_of(bytes(), signature.on_device); }
};
/// Never null when it is passed on.
using EntryPtr = std::unique_ptr<Entry>;

/// A message from one rank to another. Messages have no common order with other operations.
inline bool is_message(const Entry& entry) {
  return entry.signature.kind == OperationKind::kSend ||
         entry.signature.kind == OperationKind::kReceive;
}

}  // namespace kolo
