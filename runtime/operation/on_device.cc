#include "runtime/operation/on_device.h"

#include "runtime/base/check.h"

#include <fmt/format.h>

#include <utility>

namespace kolo {

Status OnDevice::start(const Route& route, const PlannedOperation& plan) {
  status_ = {};
  Accelerator* const accelerator = rank_.devices.accelerator();
  if (accelerator == nullptr)
    return KOLO_ERROR(kUnsupported, "it has no CUDA device: {}", rank_.devices.no_accelerator());
  if (stream_ == nullptr) {
    KOLO_ASSIGN(stream_, accelerator->new_stream());
  }
  state_ = State::kRunning;
  for (const EntryPtr& entry : plan.entries) {
    if (entry->ready != nullptr) KOLO_TRY(stream_->wait(*entry->ready));
    if (!entry->allocate || !entry->stream) continue;
    KOLO_ASSIGN(const auto allocated, accelerator->record(entry->stream->handle));
    KOLO_TRY(stream_->wait(*allocated));
  }
  return begin(route, plan);
}

bool OnDevice::advance() {
  if (!status_.ok()) return false;
  bool moved = false;
  const Status advanced = advance_state(moved);
  if (!schedule_status().ok()) {
    status_ = schedule_status();
  } else if (!advanced.ok()) {
    Error error = advanced.error();
    error.message = fmt::format("rank {}: {}", group_.communicator.world().rank(), error.message);
    status_ = std::move(error);
  }
  return moved;
}

Status OnDevice::advance_state(bool& moved) {
  if (state_ == State::kRunning) {
    KOLO_ASSIGN(const bool is_enqueued, advance_to_enqueued(moved));
    if (!is_enqueued) return {};
    KOLO_ASSIGN(enqueued_, record_all());
    state_ = State::kEnqueued;
    moved = true;
  }
  if (state_ != State::kEnqueued) return {};
  KOLO_TRY(check_enqueued());
  KOLO_ASSIGN(const bool is_done, enqueued_->is_done());
  if (!is_done) return {};
  state_ = State::kDone;
  moved = true;
  return {};
}

Result<std::shared_ptr<DeviceEvent>> OnDevice::record_all() {
  if (back_stream_ != nullptr) {
    KOLO_ASSIGN(const auto event, back_stream_->record());
    KOLO_TRY(stream_->wait(*event));
  }
  return stream_->record();
}

void OnDevice::release() {
  // After a failure, the owner of the memory may free it as soon as this returns.
  if (state_ != State::kIdle && state_ != State::kDone && stream_ != nullptr) {
    if (const auto event = record_all(); event.ok()) {
      const Status drained = (*event)->synchronize();
      static_cast<void>(drained);  // a device that has failed does nothing any more
    }
  }
  give_back();
  enqueued_.reset();
  state_ = State::kIdle;
}

}  // namespace kolo
