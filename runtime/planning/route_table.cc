#include "runtime/planning/route_table.h"

#include <functional>
#include <utility>

namespace kolo {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
constexpr OperationKind kKinds[] = {OperationKind::kAllreduce, OperationKind::kBroadcast,
                                    OperationKind::kAllgather, OperationKind::kReduceScatter,
                                    OperationKind::kAlltoall,  OperationKind::kGather,
                                    OperationKind::kScatter,   OperationKind::kSend};

std::string exchange_algorithm(const CallShape& call, const ExchangeLimits& limits, bool shared) {
  const std::uint64_t bytes = call.input_elements * size_of(call.type);
  const bool one_hop =
      call.kind != OperationKind::kAllreduce ||
      (bytes <= limits.one_shot && !(shared && limits.depends_on_arena(call.kind, bytes)));
  return one_hop ? "one_shot" : "two_shot";
}

std::string algorithm_of(const CallShape& call, const Route& route, const Resources& resources,
                         bool shared) {
  switch (route.carrier) {
    case CarrierKind::kExchange:
      return exchange_algorithm(call, resources.exchange, shared);
    case CarrierKind::kNccl:
      return "nccl";
    case CarrierKind::kSchedule:
    case CarrierKind::kDevice:
    case CarrierKind::kStaged:
      break;
  }
  const Algorithm algorithm = route.request.algorithm;
  const bool by_windows = algorithm == Algorithm::kMapped || algorithm == Algorithm::kHierarchical;
  if (call.kind == OperationKind::kAllreduce || by_windows)
    return std::string(to_string(algorithm));
  return "messages";
}

/// Sizes at which a route may change: each power of two, and the first size above it.
std::vector<std::uint64_t> sizes(int ranks) {
  std::vector<std::uint64_t> all = {0};
  for (std::uint64_t bytes = 4; bytes <= kMost; bytes *= 2) {
    all.push_back(bytes);
    all.push_back(bytes + 4 * static_cast<std::uint64_t>(ranks));  // parts stay even
  }
  return all;
}

/// Appends a row for each range of sizes whose calls take one route. `row_of`: by size.
void append_ranges(int ranks, const std::function<RouteRow(std::uint64_t)>& row_of,
                   std::vector<RouteRow>& rows) {
  const std::size_t first = rows.size();
  for (const std::uint64_t bytes : sizes(ranks)) {
    RouteRow row = row_of(bytes);
    const bool is_new = rows.size() == first || rows.back().carrier != row.carrier ||
                        rows.back().algorithm != row.algorithm;
    if (!is_new) continue;
    row.from_bytes = bytes;
    rows.push_back(std::move(row));
  }
}

}  // namespace

CallShape even_call(OperationKind kind, SubmissionMode mode, bool on_device, std::uint64_t bytes,
                    int ranks) {
  const std::uint64_t elements = bytes / size_of(DataType::kFloat32);
  const auto size = static_cast<std::size_t>(ranks);
  CallShape call{.kind = kind,
                 .mode = mode,
                 .on_device = on_device,
                 .elements = elements,
                 .device_elements = elements,
                 .input_elements = elements};
  if (kind == OperationKind::kAllgather || kind == OperationKind::kGather)
    call.counts.assign(size, elements);
  if (kind == OperationKind::kReduceScatter || kind == OperationKind::kScatter)
    call.counts.assign(size, elements / size);
  if (kind == OperationKind::kAlltoall) call.counts = {elements / size};
  return call;
}

RouteRow route_row(CallShape call, const Resources& resources, const Policy& policy, bool shared) {
  RouteRow row{.kind = call.kind, .mode = call.mode, .on_device = call.on_device, .shared = shared};
  const std::uint64_t bytes = call.input_elements * size_of(call.type);
  if (call.mode == SubmissionMode::kInOrder && resources.exchange.take_two_rank(call.kind, bytes)) {
    row.carrier = CarrierKind::kExchange;
    row.algorithm = "two_rank_exchange";
    return row;
  }
  // The exchange declines it.
  if (!shared && call.kind == OperationKind::kAllreduce && bytes > resources.exchange.copied)
    call.may_exchange = false;
  const Route taken = route(call, resources, policy);
  row.carrier = taken.carrier;
  row.algorithm = algorithm_of(call, taken, resources, shared);
  return row;
}

std::vector<RouteRow> route_table(const Resources& resources, const Policy& policy,
                                  bool on_device) {
  std::vector<RouteRow> rows;
  const auto add = [&](OperationKind kind, SubmissionMode mode, bool of_device,
                       bool shared = false) {
    const auto row_of = [&](std::uint64_t bytes) {
      return route_row(even_call(kind, mode, of_device, bytes, resources.size), resources, policy,
                       shared);
    };
    append_ranges(resources.size, row_of, rows);
  };
  for (const OperationKind kind : kKinds) {
    const bool is_message = kind == OperationKind::kSend;
    if (is_message && resources.size == 1) continue;
    if (is_ordered_kind(kind)) add(kind, SubmissionMode::kInOrder, false);
    if (kind == OperationKind::kAllreduce && resources.exchange.ranks > 1)
      add(kind, SubmissionMode::kInOrder, false, /*shared=*/true);
    const auto mode = is_message ? SubmissionMode::kPointToPoint : SubmissionMode::kNegotiated;
    add(kind, mode, false);
    if (on_device) add(kind, mode, true);
  }
  return rows;
}

}  // namespace kolo
