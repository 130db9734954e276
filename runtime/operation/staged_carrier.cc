#include "runtime/operation/staged_carrier.h"

#include "runtime/base/check.h"
#include "runtime/base/rounding.h"

#include <utility>

namespace kolo {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) { return round_up(bytes, kAlignment); }

/// A receive from this rank itself has the send beside it; the result is the input of that send.
std::size_t staged_entries(const PlannedOperation& plan) {
  return plan.is_whole() ? plan.entries.size() : 1;
}

}  // namespace

Status StagedCarrier::begin(const Route& route, const PlannedOperation& plan) {
  route_ = &route;
  plan_ = &plan;
  KOLO_TRY(copy_in());
  KOLO_ASSIGN(copied_in_, stream_->record());
  return {};
}

// One block of pinned memory for all inputs and outputs; in-place tensors stay in place.
Status StagedCarrier::copy_in() {
  const PlannedOperation& plan = *plan_;
  OperandMemory& memory = on_host_.memory();
  memory.reset(plan);
  std::size_t total = kAlignment;
  for (std::size_t i = 0; i < staged_entries(plan); ++i)
    total +=
        aligned(plan.input_bytes(*plan.entries[i])) + aligned(plan.output_bytes(*plan.entries[i]));
  KOLO_ASSIGN(std::byte * next, memory.borrow(total, MemoryKind::kPinned));

  const bool in_place = plan.lies_in_place(group_.communicator);
  for (std::size_t i = 0; i < staged_entries(plan); ++i) {
    const Entry& entry = *plan.entries[i];
    const std::size_t bytes = plan.input_bytes(entry);
    const std::size_t own = plan.layout.own_offset * size_of(entry.signature.type);
    const bool scatters = entry.signature.kind == OperationKind::kScatter;
    std::byte* output = next;
    std::byte* input = output;
    if (in_place && !scatters) {
      input = output + own;
    } else if (entry.input != entry.output && !entry.absent) {
      input = output + aligned(plan.output_bytes(entry));
    }
    if (in_place && scatters) output = input + own;
    next += aligned(plan.output_bytes(entry)) + aligned(bytes);
    memory.substitute(i, input, output);
    if (bytes > 0) KOLO_TRY(stream_->copy(input, entry.input, bytes));
  }
  return {};
}

Result<bool> StagedCarrier::advance_to_enqueued(bool& moved) {
  if (copied_in_ != nullptr) {
    KOLO_ASSIGN(const bool is_copied, copied_in_->is_done());
    if (!is_copied) return false;
    copied_in_.reset();
    moved = true;
    KOLO_TRY(on_host_.start_on_memory(*route_, *plan_));
  }
  moved |= on_host_.advance();
  if (!on_host_.done() || !on_host_.status().ok()) return false;
  on_host_.release_slot();  // the partition's next process set may start before the device is done
  KOLO_TRY(copy_out());
  return true;
}

Status StagedCarrier::copy_out() {
  for (std::size_t i = 0; i < staged_entries(*plan_); ++i) {
    const Entry& entry = *plan_->entries[i];
    const std::size_t bytes = plan_->output_bytes(entry);
    if (entry.output == nullptr || bytes == 0) continue;
    KOLO_TRY(stream_->copy(entry.output, on_host_.memory().output_of(i), bytes));
  }
  return {};
}

void StagedCarrier::give_back() {
  copied_in_.reset();
  on_host_.release();
}

std::string StagedCarrier::describe() const {
  return copied_in_ != nullptr ? "waits for the device, which copies its inputs to the host"
                               : on_host_.describe();
}

}  // namespace kolo
