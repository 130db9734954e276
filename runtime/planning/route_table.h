// The table of routes: what route() answers for each kind of call and every size, as ranges. For
// people (kolo-info --routes) and tests. Pure.
#pragma once

#include "runtime/planning/route.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kolo {

/// Calls of at least `from_bytes` bytes of input on each rank take this route, up to the next row
/// of the same kind, mode and memory.
struct RouteRow {
  OperationKind kind = OperationKind::kAllreduce;
  SubmissionMode mode = SubmissionMode::kNegotiated;
  bool on_device = false;
  bool shared = false;  ///< all ranks' memory lies in the arena
  std::uint64_t from_bytes = 0;
  CarrierKind carrier = CarrierKind::kSchedule;
  std::string algorithm;  ///< "two_shot", "mapped", "ring", "messages", …

  friend bool operator==(const RouteRow&, const RouteRow&) = default;
};

/// Rows for one float32 tensor of 0 to 1 GiB whose parts are even, by kind, mode, memory and size;
/// for shared memory where it may make a difference. `on_device`: also for device memory.
std::vector<RouteRow> route_table(const Resources& resources, const Policy& policy, bool on_device);

/// The row of one call. `shared`: RouteRow::shared.
RouteRow route_row(CallShape call, const Resources& resources, const Policy& policy,
                   bool shared = false);

/// A call of `bytes` bytes of float32 input on each rank, in parts that are even.
CallShape even_call(OperationKind kind, SubmissionMode mode, bool on_device, std::uint64_t bytes,
                    int ranks);

}  // namespace kolo
