// Entry: one submitted operation on its way through the stages. The table hands it to the
// controller, the controller to the operation that runs it: as an EntryPtr, since copying some 400
// bytes from stage to stage would cost a step of many tensors more than their negotiation does.
#pragma once

#include <kolo/types.h>
#include <kolo/work.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {

class DeviceEvent;

enum class OperationKind : std::uint8_t {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kAlltoall,
  kReduceScatter,
  kGather,
  kScatter,
  kBarrier,
  kJoin,
  kAddProcessSet,     ///< shape: the ranks
  kRemoveProcessSet,  ///< root: the set's id
  kSend,              ///< root: who receives; not negotiated by name
  kReceive,           ///< root: who sends
};
inline constexpr int kOperationKindCount = 13;
std::string_view to_string(OperationKind kind);

/// Kinds that count in rows: the ranks agree on the shape of a row, and each has as many as it has.
bool is_row_wise(OperationKind kind);
/// Kinds that run a schedule once they are agreed on; the agreement on the others is all of them.
bool moves_data(OperationKind kind);

/// What all ranks must agree on under one name.
struct Signature {
  OperationKind kind = OperationKind::kAllreduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape = {};        ///< of a row-wise kind: of one row
  bool on_device = false;  ///< memory of each rank's accelerator
  std::string group = {};  ///< the group that this is a member of, and how many it has
  int group_size = 0;

  std::uint64_t elements() const { return static_cast<std::uint64_t>(element_count(shape)); }
  std::uint64_t bytes() const { return elements() * size_of(type); }
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// Bytes as they count where tensors are gathered (KOLO_BATCH_SIZE, KOLO_FUSION_MAX_TENSOR): a
/// device carries that many more in the time that an operation on it takes to begin.
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

/// Rows of a row-wise operation: of an allgather and a gather how many a rank has (one number), of
/// an alltoall how many it sends to each rank, of a scatter the same at the root, and none
/// elsewhere.
using Splits = std::vector<std::int64_t>;
/// Every rank's splits; empty for a kind that is not row-wise.
using SplitTable = std::vector<Splits>;

/// Called once the ranks have agreed, by the progress token's holder, for outputs whose shape only
/// the agreement tells. Null: no memory; then this Work alone fails, with kOutOfMemory.
using Allocate = std::function<std::byte*(const Shape& shape)>;

struct Entry {
  std::string name;
  Signature signature;
  const std::byte* input = nullptr;  ///< contiguous
  std::byte* output = nullptr;
  bool absent = false;  ///< contributes zeros; input is not read
  Splits splits = {};
  /// What is wrong with this rank's call. It is announced all the same, so that no rank waits for
  /// another: it fails with this sentence on all of them.
  std::string complaint = {};
  Allocate allocate = {};
  std::uint32_t tag = 0;       ///< of kSend and kReceive
  std::uint64_t step = 0;      ///< of the caller's, to which the call belongs; 0: not told
  std::shared_ptr<Work> work;  ///< null: this rank has joined and lends itself
  std::shared_ptr<const void> keep_alive;
  /// Of memory of the accelerator: the memory is ready after it.
  std::shared_ptr<const DeviceEvent> ready = {};
  /// Of such memory: the caller's stream. What `allocate` returns is ready after what it was given
  /// until then: an allocator that works by streams hands out what its stream may still use.
  std::optional<CudaStream> stream = {};
  std::chrono::steady_clock::time_point submitted_at = {};
  /// For the timeline, if there is one: taken in by the cycle, agreed on by all ranks, started.
  std::chrono::steady_clock::time_point drained_at = {};
  std::chrono::steady_clock::time_point agreed_at = {};
  std::chrono::steady_clock::time_point started_at = {};

  /// Of the input, as far as it is known here.
  std::uint64_t bytes() const;
  std::uint64_t weight() const { return weight_of(bytes(), signature.on_device); }
};
/// Never null where it is handed on.
using EntryPtr = std::unique_ptr<Entry>;

/// From one rank to another, in no common order with the rest.
inline bool is_message(const Entry& entry) {
  return entry.signature.kind == OperationKind::kSend ||
         entry.signature.kind == OperationKind::kReceive;
}

}  // namespace kolo
