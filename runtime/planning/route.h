// route(): which carrier takes a call, and by which schedule. A pure function of values that all
// ranks of a process set have, so all decide the same; a rank that decided differently would wait
// for messages that nobody sends. Called when an operation starts, unless it is like the one that
// its object carried before, by the progress token's holder; kolo-info and the tests call it, too.
#pragma once

#include "runtime/base/operation_kind.h"
#include "runtime/communicator/communicator.h"
#include "runtime/planning/chooser.h"
#include "runtime/planning/exchange_limits.h"

#include <kolo/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kolo {

/// What moves an operation's data.
enum class CarrierKind : std::uint8_t {
  kExchange,  ///< control segments of the host's windows, in the caller's thread
  kSchedule,  ///< a schedule on host memory: windows inside a host, messages between hosts
  kDevice,    ///< a schedule on device memory, enqueued on its streams
  kStaged,    ///< device memory copied to pinned host memory, a schedule there, and back
  kNccl,      ///< ncclAllReduce on device memory
};
inline constexpr std::size_t kCarrierKinds = 5;
/// "exchange", "schedule", "device", "staged", "nccl".
std::string_view to_string(CarrierKind carrier);

/// The arguments of a call. Equal on all ranks, except for `in_place`.
struct CallShape {
  OperationKind kind = OperationKind::kAllreduce;
  SubmissionMode mode = SubmissionMode::kNegotiated;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool on_device = false;
  int root = 0;                       ///< communicator's rank: root, or the other end of a message
  std::size_t tensors = 1;            ///< number of tensors; above 1 they are fused
  std::uint64_t elements = 0;         ///< elements in all tensors; for row-wise kinds see `counts`
  std::uint64_t device_elements = 0;  ///< with the gaps between tensors fused on a device
  std::vector<std::uint64_t> counts = {};  ///< RowLayout::counts
  std::uint64_t input_elements = 0;  ///< this rank's input elements, as the exchange counts a call
  bool in_place = false;             ///< ScheduleRequest::in_place; ranks may differ
  bool meets_first = false;          ///< ScheduleRequest::meets_first
  bool may_exchange = true;          ///< false: the exchange has declined this call

  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// What a process set's ranks share. Equal on all of them, except for `rank`.
struct Resources {
  int rank = 0;
  int size = 1;
  HostLayout layout = {};
  /// The NUMA nodes, in the place of hosts, where all ranks are on one host. Ranks that several
  /// nodes have in common count as on the first.
  HostLayout nodes = {};
  ExchangeLimits exchange = {};
  /// Cores that the ranks of one host share, where there is not one for each; else 0.
  int shared_cores = 0;
  bool maps_windows = false;   ///< all ranks are on one host and have slots in its windows
  std::size_t slot_bytes = 0;  ///< bytes of a window's slot for one operation
  std::size_t slot_bytes_over_hosts = 0;  ///< equal on every host with several ranks; 0: none
  struct Devices {
    bool map_windows = false;             ///< all ranks map each other's device windows
    std::size_t slot_bytes = 0;           ///< bytes of a device window's slot
    std::size_t slot_bytes_of_hosts = 0;  ///< DeviceWindow::slot_bytes_of_hosts()
    std::vector<int> leaders = {};        ///< DeviceWindow::device_leaders()
    bool network_is_direct = false;       ///< DeviceNetwork::is_direct
    bool use_nccl = false;                ///< KOLO_OPERATIONS=nccl
  } devices = {};
  std::uint64_t version = 0;  ///< differs where the values may differ; 0: unknown
};

/// What the configuration and the measured links prefer. Equal on all ranks.
struct Policy {
  LinkCost inside = {};
  LinkCost across = {};
  std::optional<Algorithm> forced = {};  ///< KOLO_ALGORITHM
  bool deterministic = false;            ///< KOLO_DETERMINISTIC
  std::int64_t chunk_bytes = 256 << 10;  ///< KOLO_CHUNK_SIZE
  std::int64_t chunks_in_flight = 4;     ///< KOLO_CHUNKS_IN_FLIGHT
  std::int64_t device_chunk = 1 << 20;   ///< KOLO_DEVICE_CHUNK
  std::uint64_t version = 0;             ///< as Resources::version
};

struct Route {
  CarrierKind carrier = CarrierKind::kSchedule;
  /// The schedule to run; unused for kExchange and kNccl. The carrier sets ScheduleRequest::direct,
  /// because it knows where this rank's memory lies.
  ScheduleRequest request = {};
  /// kDevice: the network reads and writes device memory directly; else through pinned memory.
  bool network_is_direct = false;
};

/// What the prices of all-reduces depend on. The windows count only if they are large enough.
Network network_of(const Resources& resources, const Policy& policy);

/// Preconditions: the kind moves data; `counts` as the kind needs them.
Route route(const CallShape& call, const Resources& resources, const Policy& policy);

/// The algorithm of an all-reduce of `bytes` bytes on host memory. `partial_width`: see price().
Algorithm choose_allreduce(const Resources& resources, const Policy& policy, std::uint64_t bytes,
                           double partial_width = 1);

/// Bytes at the end of a slot of `slot_bytes` for the offsets of `tensors` fused tensors' inputs
/// and outputs. 0 for one tensor, which needs no list, and for too many tensors.
std::size_t offset_list_bytes(std::size_t tensors, std::size_t slot_bytes);

/// Elements between a fused tensor of `elements` elements of device memory and the next one.
std::uint64_t device_gap(DataType type, std::uint64_t elements);

}  // namespace kolo
