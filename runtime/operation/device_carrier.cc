#include "runtime/operation/device_carrier.h"

#include "runtime/base/check.h"

#include <utility>

namespace kolo {

DeviceCarrier::DeviceCarrier(const RankServices& rank, const GroupServices& group)
    : OnDevice(rank, group),
      partition_(group.slots.partition()),
      windows_(windows_of(group.communicator, rank.devices.windows())),
      memory_(rank.arena, group.communicator),
      executor_(rank.transport, rank.device, &rank.timeline) {}

Status DeviceCarrier::begin(const Route& route, const PlannedOperation& plan) {
  memory_.reset(plan);
  MemoryBinding binding;
  KOLO_TRY(memory_.bind(plan, stream_.get(), /*spaced=*/true, binding));
  binding.stream = stream_.get();
  std::shared_ptr<const Schedule> schedule = rank_.schedules.get(route.request);
  KOLO_TRY(bind_staging(*schedule, route.network_is_direct, binding));
  if (schedule->scratch_elements > 0) {
    slot_ = rank_.devices.take_slot(partition_);
    // Peers read and write memory of the arena in place: the copy to the slot is omitted, but keeps
    // its position among the steps. The signal that the memory is ready still waits for the stream,
    // which waits for pending writes of the caller's stream.
    WindowOffsets offsets = offsets_in(rank_.devices.arena().get(), binding, /*has_lists=*/false);
    offsets.scratch = *slot_;
    UsersMemory& users = rank_.window.users_memory();
    binding.mapped = {offsets, windows_, users.is_open() ? &users : nullptr,
                      group_.communicator.ranks()};
    binding.scratch =
        windows_[static_cast<std::size_t>(group_.communicator.rank())].data() + *slot_;
  }
  executor_.start(std::move(schedule), std::move(binding), group_.communicator.tag_space(plan.mode),
                  plan.sequence, group_.communicator.ranks(), call_of(plan, group_.communicator));
  return {};
}

Status DeviceCarrier::bind_staging(const Schedule& schedule, bool network_is_direct,
                                   MemoryBinding& binding) {
  if (schedule.staging_elements == 0) return {};
  const SpaceLayout layout(binding, schedule.staging_elements, schedule.partial_staging_elements);
  KOLO_ASSIGN(staging_,
              rank_.arena.allocate(
                  layout.bytes, network_is_direct ? MemoryKind::kNetworked : MemoryKind::kPinned));
  binding.staging = staging_.data();
  binding.partial_staging = staging_.data() + layout.partials_begin;
  binding.networked = staging_.region();
  if (back_stream_ == nullptr) {
    KOLO_ASSIGN(back_stream_, rank_.devices.accelerator()->new_stream());
  }
  // `stream_` waits for all earlier users of the output.
  KOLO_ASSIGN(const auto begun, stream_->record());
  KOLO_TRY(back_stream_->wait(*begun));
  binding.back_stream = back_stream_.get();
  return {};
}

Result<bool> DeviceCarrier::advance_to_enqueued(bool& moved) {
  moved |= executor_.advance();
  return executor_.done() && !executor_.failed();
}

void DeviceCarrier::give_back() {
  executor_.leave_device();
  staging_ = {};
  memory_.release();
  if (slot_) rank_.devices.give_back_slot(partition_, *slot_);
  slot_.reset();
}

}  // namespace kolo
