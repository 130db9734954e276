#include "runtime/operation/schedule_carrier.h"

#include "runtime/base/check.h"

#include <cstring>
#include <utility>

namespace kolo {
namespace {

// If all ranks of the host together read and write more than the last-level cache holds, results do
// not stay in the cache. Cached stores would only evict data that is still to be read, unless the
// operation is in place.
Stores output_stores(const MemoryBinding& binding, int ranks) {
  const std::size_t element = size_of(binding.type);
  const std::uint64_t bytes = (binding.input.elements() + binding.output.elements()) * element *
                              static_cast<std::uint64_t>(ranks);
  if (bytes <= last_level_cache_bytes() || binding.output.elements() == 0) return Stores::kCached;
  const bool in_place = binding.input.elements() > 0 && binding.input.rest_at(0, element).data ==
                                                            binding.output.rest_at(0, element).data;
  return in_place ? Stores::kCached : Stores::kStreaming;
}

}  // namespace

ScheduleCarrier::ScheduleCarrier(const RankServices& rank, const GroupServices& group)
    : rank_(rank),
      group_(group),
      partition_(group.slots.partition()),
      windows_(windows_of(group.communicator, rank.window.windows())),
      memory_(rank.arena, group.communicator),
      executor_(rank.transport, rank.device, &rank.timeline) {}

Status ScheduleCarrier::start(const Route& route, const PlannedOperation& plan) {
  memory_.reset(plan);
  announces_ = exchange_of(plan, group_.communicator);
  return start_on_memory(route, plan);
}

Status ScheduleCarrier::start_on_memory(const Route& route, const PlannedOperation& plan) {
  announced_ = {};
  mismatch_ = {};
  MemoryBinding binding;
  KOLO_TRY(memory_.bind(plan, nullptr, /*spaced=*/false, binding));
  const WindowOffsets offsets =
      offsets_in(rank_.window.arena().get(), binding, list_bytes(plan) > 0);
  ScheduleRequest request = route.request;
  if (request.algorithm == Algorithm::kMapped && offsets.input != WindowOffsets::kNowhere)
    request.direct =
        request.kind == OperationKind::kAllgather ||
        (request.kind == OperationKind::kAllreduce && offsets.output != WindowOffsets::kNowhere);
  std::shared_ptr<const Schedule> schedule = rank_.schedules.get(request);
  KOLO_TRY(bind_scratch(*schedule, plan, offsets, binding));
  executor_.start(std::move(schedule), std::move(binding), group_.communicator.tag_space(plan.mode),
                  plan.sequence, group_.communicator.ranks(), call_of(plan, group_.communicator));
  return {};
}

std::size_t ScheduleCarrier::list_bytes(const PlannedOperation& plan) const {
  return offset_list_bytes(plan.entries.size(), rank_.window.slot_bytes(partition_));
}

Status ScheduleCarrier::bind_scratch(const Schedule& schedule, const PlannedOperation& plan,
                                     WindowOffsets offsets, MemoryBinding& binding) {
  if (schedule.scratch_elements == 0) return {};
  // Partial sums that peers do not read need no room in the window.
  const bool is_mapped = schedule.scratch_is_mapped;
  const SpaceLayout layout(binding, is_mapped ? 0 : schedule.scratch_elements,
                           schedule.partial_scratch_elements);
  if (layout.bytes > 0) {
    KOLO_ASSIGN(scratch_, rank_.arena.allocate(layout.bytes, MemoryKind::kHeap));
    binding.partial_scratch = scratch_.data() + layout.partials_begin;
  }
  binding.scratch = scratch_.data();
  if (!is_mapped) return {};
  slot_ = rank_.window.take_slot(partition_);
  offsets.scratch = *slot_;
  if (binding.input.size() > 1) list_offsets(schedule, list_bytes(plan), binding, offsets);
  binding.output_stores = output_stores(binding, group_.communicator.size());
  binding.mapped = {offsets, windows_, &rank_.window.users_memory(), group_.communicator.ranks()};
  binding.scratch = own_window().data() + *slot_;
  return {};
}

void ScheduleCarrier::list_offsets(const Schedule& schedule, std::size_t list_bytes,
                                   const MemoryBinding& binding, WindowOffsets& offsets) const {
  const std::size_t slot = rank_.window.slot_bytes(partition_);
  const bool has_room = schedule.scratch_elements * size_of(binding.type) + list_bytes <= slot;
  const std::span<std::byte> window = own_window();
  const auto list = [&](const SegmentList& pieces, std::uint64_t& offset, std::size_t at) {
    if (offset == WindowOffsets::kNowhere) return;
    offset = has_room ? at : WindowOffsets::kNowhere;
    if (!has_room) return;
    for (const Segment& piece : pieces.segments()) {
      const auto in_window = static_cast<std::uint64_t>(piece.data - window.data());
      std::memcpy(window.data() + at, &in_window, sizeof in_window);
      at += sizeof in_window;
    }
  };
  const std::size_t lists = offsets.scratch + slot - list_bytes;
  list(binding.input, offsets.input, lists);
  list(binding.output, offsets.output, lists + list_bytes / 2);
}

bool ScheduleCarrier::advance() {
  // A rank that has announced a call has published its earlier exchanges.
  if (announces_ && !group_.exchange.busy()) {
    announced_ = group_.exchange.announce(*announces_);
    announces_.reset();
    compared_ = 0;
  }
  const auto compared = group_.exchange.compare(announced_, compared_);
  if (!compared.ok()) mismatch_ = compared.error();
  return executor_.advance();
}

void ScheduleCarrier::release_slot() {
  if (slot_) rank_.window.give_back_slot(partition_, *slot_);
  slot_.reset();
}

void ScheduleCarrier::release() {
  announces_.reset();
  scratch_ = {};
  memory_.release();
  release_slot();
}

}  // namespace kolo
