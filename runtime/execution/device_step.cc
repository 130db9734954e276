// Cuts a step into the stretches in which all its operands are contiguous, and enqueues them
// together: thousands of tensors need one launch. Token holder only.
#include "runtime/execution/device_step.h"

#include "runtime/base/check.h"
#include "runtime/execution/local_step.h"

#include <algorithm>

namespace kolo {
namespace {

/// Least bytes of a piece between device and host for the copy engines. They leave the processors
/// to other work, but need a call for each piece.
constexpr std::size_t kLeastForEngines = 64 << 10;

/// Type of all sources, after widen() has converted half types beside partial sums.
DataType source_type_of(std::span<const Operand> sources, const MemoryBinding& binding) {
  const bool has_partials = std::any_of(sources.begin(), sources.end(),
                                        [](const Operand& source) { return source.partial; });
  return has_partials ? partial_type(binding.type, binding.op) : binding.type;
}

bool is_plain_copy(const Combination& what) {
  return what.sources == 1 && what.destinations == 1 && what.prescaled == 0 &&
         what.postscale.is_identity() && what.source_type == what.type;
}

}  // namespace

// The kernels need sources of one type. The partial sum's memory at the source's offset is free,
// since an element is either an input or a partial sum.
Status DeviceStep::widen(const Schedule& schedule, Operand& source, const MemoryBinding& binding,
                         DeviceStream& stream) {
  if (source.partial) return {};
  const Operand wide = source.as_partial();
  const std::uint64_t room = source.space == Space::kStaging ? schedule.partial_staging_elements
                                                             : schedule.partial_scratch_elements;
  const bool is_own = source.space == Space::kStaging || source.space == Space::kScratch;
  if (!is_own || source.offset + source.length > room) return unbound(wide, 0);
  const std::byte* const from = resolve(binding, source, Role::kSource, 0).data;
  std::byte* const to = resolve(binding, wide, Role::kDestination, 0).data;
  if (from == nullptr || to == nullptr) return unbound(wide, 0);
  source = wide;
  return stream.combine({.type = type_of(binding, wide), .source_type = binding.type},
                        {{&from, 1}, {&to, 1}, {&wide.length, 1}});
}

Status DeviceStep::enqueue(const Schedule& schedule, const Step& step, const MemoryBinding& binding,
                           DeviceStream& stream) {
  const auto destinations = schedule.destinations(step);
  if (step.source_count == 0 || is_void(schedule, step, binding)) return {};
  KOLO_TRY(may_touch(schedule, step, binding));
  const DataType source_type = source_type_of(schedule.sources(step), binding);
  const DataType target_type = type_of(binding, destinations.front());
  step_sources_.assign(schedule.sources(step).begin(), schedule.sources(step).end());
  if (source_type != binding.type)
    for (Operand& source : step_sources_) KOLO_TRY(widen(schedule, source, binding, stream));
  const Combination what =
      combination_of(step, binding, target_type, source_type, destinations.size());
  KOLO_TRY(cut(what, destinations, binding));
  if (counts_.empty()) return {};
  if (what.op == ReduceOp::kAdasum) return adasum(what, stream);
  const bool is_staged = step_sources_.front().space == Space::kStaging ||
                         destinations.front().space == Space::kStaging;
  const std::size_t bytes = step_sources_.front().length * size_of(source_type);
  if (is_staged && is_plain_copy(what) && bytes >= counts_.size() * kLeastForEngines)
    return copy_all(size_of(source_type), stream);
  return stream.combine(what, {sources_, destinations_, counts_});
}

Combination DeviceStep::combination_of(const Step& step, const MemoryBinding& binding,
                                       DataType target_type, DataType source_type,
                                       std::size_t destinations) const {
  Combination what{.type = target_type,
                   .source_type = source_type,
                   .op = step.kind == StepKind::kReduce ? binding.op : ReduceOp::kSum,
                   .sources = static_cast<std::uint32_t>(step_sources_.size()),
                   .destinations = static_cast<std::uint32_t>(destinations)};
  if (has_prescale(step, binding)) {
    what.prescale = binding.prescale;
    for (std::size_t i = 0; i < step_sources_.size(); ++i)
      if (step_sources_[i].space == Space::kInput) what.prescaled |= std::uint32_t{1} << i;
  }
  what.postscale = postscale(step, binding);
  return what;
}

Status DeviceStep::cut(const Combination& what, std::span<const Operand> destinations,
                       const MemoryBinding& binding) {
  const std::size_t sources = step_sources_.size();
  const std::uint64_t length = step_sources_.front().length;
  const bool may_stay = is_plain_copy(what);
  sources_.clear();
  destinations_.clear();
  counts_.clear();
  operands_.assign(sources + destinations.size(), {});
  for (std::uint64_t done = 0; done < length;) {
    std::uint64_t take = length - done;
    bool is_gap = false;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const bool is_source = i < sources;
      const Operand& operand = is_source ? step_sources_[i] : destinations[i - sources];
      Segment& rest = operands_[i];
      if (rest.elements == 0)
        rest = resolve(binding, operand, is_source ? Role::kSource : Role::kDestination, done);
      if (rest.elements == 0) return unbound(operand, done);
      is_gap |= rest.data == nullptr;
      take = std::min(take, rest.elements);
    }
    if (!is_gap && !(may_stay && operands_.front().data == operands_.back().data)) add_piece(take);
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      Segment& rest = operands_[i];
      const DataType type = i < sources ? *what.source_type : what.type;
      if (rest.data != nullptr) rest.data += take * size_of(type);
      rest.elements -= take;
    }
    done += take;
  }
  return {};
}

void DeviceStep::add_piece(std::uint64_t elements) {
  const auto first_destination =
      operands_.begin() + static_cast<std::ptrdiff_t>(step_sources_.size());
  for (auto it = operands_.begin(); it != first_destination; ++it) sources_.push_back(it->data);
  for (auto it = first_destination; it != operands_.end(); ++it) destinations_.push_back(it->data);
  counts_.push_back(elements);
}

Status DeviceStep::adasum(const Combination& what, DeviceStream& stream) const {
  // Adasum's coefficients are those of whole tensors.
  if (what.sources != 2 || what.destinations != 1 || counts_.size() != 1)
    return KOLO_ERROR(kInternal, "an Adasum combines two vectors, each in one piece");
  KOLO_TRY(stream.adasum(what.type, destinations_[0], sources_[0], sources_[1], counts_[0]));
  if (what.postscale.is_identity()) return {};
  const std::byte* const combined = destinations_[0];
  return stream.combine({.type = what.type, .postscale = what.postscale},
                        {{&combined, 1}, destinations_, counts_});
}

Status DeviceStep::may_touch(const Schedule& schedule, const Step& step,
                             const MemoryBinding& binding) {
  if (binding.mapped.users == nullptr) return {};
  const auto may_touch_all = [&](std::span<const Operand> operands, Role role) -> Status {
    for (const Operand& operand : operands) {
      if (!is_peers_users(binding, operand, role)) continue;
      if (!touch_) touch_.emplace(*binding.mapped.users);
      touches_unmarked_ = true;
      KOLO_TRY(may_touch_users(binding, operand));
    }
    return {};
  };
  KOLO_TRY(may_touch_all(schedule.sources(step), Role::kSource));
  return may_touch_all(schedule.destinations(step), Role::kDestination);
}

Status DeviceStep::copy_all(std::size_t element, DeviceStream& stream) const {
  for (std::size_t i = 0; i < counts_.size(); ++i)
    KOLO_TRY(stream.copy(destinations_[i], sources_[i], counts_[i] * element));
  return {};
}

}  // namespace kolo
