#include "tools/simulate/collective.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"
#include "runtime/collectives/split.h"
#include "runtime/device/partial_sums.h"
#include "runtime/planning/route_on_device.h"
#include "runtime/planning/route_table.h"

#include <algorithm>
#include <set>
#include <utility>

namespace kolo::simulate {
namespace {

/// Up to here, all ranks are played in a moment.
constexpr std::uint64_t kFewSteps = 2'000'000;

CallShape shape_of(const Machine& machine, const Call& call) {
  const bool is_part = call.kind == OperationKind::kAllgather;
  const std::uint64_t elements =
      call.bytes / size_of(call.type) / static_cast<std::uint64_t>(is_part ? machine.ranks() : 1);
  CallShape shape = even_call(call.kind, SubmissionMode::kNegotiated, /*on_device=*/false,
                              elements * size_of(DataType::kFloat32), machine.ranks());
  shape.type = call.type;
  return shape;
}

Policy policy_of(const Machine& machine, const Call& call) {
  Policy policy = policy_of(machine);
  policy.forced = call.algorithm;
  return policy;
}

Widths widths_of(const Call& call) {
  return {size_of(call.type), size_of(partial_type(call.type, ReduceOp::kSum))};
}

/// All ranks make the same request, except for `rank`.
ScheduleOf schedules_of(const Machine& machine, const Call& call) {
  const Route taken =
      route(shape_of(machine, call), resources_of(machine), policy_of(machine, call));
  return [request = taken.request](int rank) mutable {
    request.rank = rank;
    return make_schedule(request);
  };
}

std::optional<Symmetry> symmetry_of(const Machine& machine, const ScheduleOf& schedules,
                                    const Call& call) {
  if (machine.hosts == 1) return std::nullopt;
  for (const Symmetry symmetry : {Symmetry::kTurn, Symmetry::kMirror})
    if (is_alike(machine, schedules, widths_of(call), symmetry)) return symmetry;
  return std::nullopt;
}

/// In how many blocks a ring over all ranks, or over all hosts, may cut what `one` sends.
std::set<std::uint64_t> blocks_of(const Machine& machine, const Schedule& one) {
  const auto sends = std::count_if(one.steps.begin(), one.steps.end(),
                                   [](const Step& step) { return step.kind == StepKind::kSend; });
  std::set<std::uint64_t> blocks = {1};
  for (const int in_ring : {machine.hosts, machine.ranks()}) {
    const auto least = static_cast<std::uint64_t>(sends / (2 * (in_ring - 1)));
    blocks.insert({std::max<std::uint64_t>(least, 1), least + 1});
  }
  return blocks;
}

/// The least call of up to twice as many bytes under which hosts are alike, if one is found.
std::optional<std::pair<Call, Symmetry>> evened(const Machine& machine, const Call& call,
                                                const Schedule& one) {
  if (call.kind != OperationKind::kAllreduce || !machine.is_uniform()) return std::nullopt;
  std::set<std::uint64_t> sizes;
  for (const std::uint64_t blocks : blocks_of(machine, one))
    for (const std::uint64_t granule : {std::uint64_t{1}, kCacheLineElements}) {
      const std::uint64_t parts = static_cast<std::uint64_t>(machine.ranks()) * blocks * granule;
      sizes.insert(round_up(call.bytes, parts * size_of(call.type)));
    }
  for (const std::uint64_t bytes : sizes) {
    if (bytes > 2 * call.bytes) break;
    Call even = call;
    even.bytes = bytes;
    if (const auto symmetry = symmetry_of(machine, schedules_of(machine, even), even))
      return std::pair(even, *symmetry);
  }
  return std::nullopt;
}

Result<Time> played(const Machine& machine, const Call& call, const ScheduleOf& schedules,
                    Symmetry symmetry) {
  KOLO_ASSIGN(const Played result, play(machine, schedules, widths_of(call), symmetry));
  return Time{.us = result.us, .bytes = call.bytes, .symmetry = symmetry, .steps = result.steps};
}

}  // namespace

Result<Time> time_of(const Machine& machine, const Call& call, std::uint64_t most_steps) {
  const ScheduleOf schedules = schedules_of(machine, call);
  const Schedule one = schedules(0);
  const std::uint64_t of_one =
      std::max(one.steps.size(), schedules(machine.ranks() / 2).steps.size());
  const std::uint64_t of_all = of_one * static_cast<std::uint64_t>(machine.ranks());
  const std::uint64_t of_host = of_one * static_cast<std::uint64_t>(machine.ranks_per_host);
  const auto named = [&](Result<Time> time) {
    if (time.ok()) time->schedule = one.algorithm;
    return time;
  };
  if (of_all <= std::min(kFewSteps, most_steps))
    return named(played(machine, call, schedules, Symmetry::kNone));
  if (of_host <= most_steps) {
    if (const auto symmetry = symmetry_of(machine, schedules, call))
      return named(played(machine, call, schedules, *symmetry));
    if (of_all > most_steps)
      if (const auto even = evened(machine, call, one))
        return named(
            played(machine, even->first, schedules_of(machine, even->first), even->second));
  }
  if (of_all <= most_steps) return named(played(machine, call, schedules, Symmetry::kNone));
  return KOLO_ERROR(
      kUnsupported,
      "{} of {} bytes on {} ranks has about {} million steps, and no host can stand for the "
      "others; at most {} million are played: give fewer ranks, or fewer bytes",
      one.algorithm, call.bytes, machine.ranks(), of_all / 1'000'000, most_steps / 1'000'000);
}

std::vector<Algorithm> algorithms_of(const Machine& machine) {
  const bool shares = machine.ranks_per_host > 1;
  std::vector<Algorithm> algorithms;
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::kMapped && (machine.hosts > 1 || !shares)) continue;
    if (algorithm == Algorithm::kHierarchical && (machine.hosts == 1 || !shares)) continue;
    algorithms.push_back(algorithm);
  }
  return algorithms;
}

Algorithm choice_of(const Machine& machine, const Call& call) {
  return choose_allreduce(resources_of(machine), policy_of(machine), call.bytes,
                          partial_width(shape_of(machine, call)));
}

double price_of(const Machine& machine, const Call& call, Algorithm algorithm) {
  if (algorithm == Algorithm::kMapped) return 0;
  return price(algorithm, network_of(resources_of(machine), policy_of(machine)), call.bytes,
               partial_width(shape_of(machine, call)));
}

}  // namespace kolo::simulate
