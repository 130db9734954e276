#include "runtime/operation/operand_memory.h"

#include "runtime/base/check.h"
#include "runtime/base/overlap.h"
#include "runtime/device/accelerator.h"

#include <cstring>
#include <utility>

namespace kolo {
namespace {

MemoryKind kind_of(const DeviceStream* stream) {
  return stream != nullptr ? MemoryKind::kDevice : MemoryKind::kHeap;
}

Status fill_with_zeros(DeviceStream* stream, std::byte* memory, std::size_t bytes) {
  if (stream != nullptr) return stream->zero(memory, bytes);
  std::memset(memory, 0, bytes);
  return {};
}

Status copy(DeviceStream* stream, std::byte* destination, const std::byte* source,
            std::size_t bytes) {
  if (stream != nullptr) return stream->copy(destination, source, bytes);
  std::memcpy(destination, source, bytes);
  return {};
}

}  // namespace

void OperandMemory::reset(const PlannedOperation& plan) {
  of_entries_.clear();
  for (const EntryPtr& entry : plan.entries) of_entries_.push_back({entry->input, entry->output});
}

Result<std::byte*> OperandMemory::borrow(std::size_t bytes, MemoryKind kind) {
  KOLO_ASSIGN(ArenaBlock block, arena_.allocate(bytes, kind));
  borrowed_.push_back(std::move(block));
  return borrowed_.back().data();
}

Status OperandMemory::bind(const PlannedOperation& plan, DeviceStream* stream, bool spaced,
                           MemoryBinding& binding) {
  const Scales scales = plan.scales();
  binding.type = plan.signature().type;
  binding.op = plan.signature().op;
  binding.prescale = scales.pre;
  binding.postscale = scales.post;
  return plan.is_whole() ? bind_whole(plan, stream, spaced, binding)
                         : bind_rows(plan, stream, binding);
}

Status OperandMemory::bind_whole(const PlannedOperation& plan, DeviceStream* stream, bool spaced,
                                 MemoryBinding& binding) {
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const Entry& entry = *plan.entries[i];
    const std::uint64_t count = entry.signature.elements();
    const std::size_t bytes = entry.signature.bytes();
    std::byte* output = of_entries_[i].output;
    if (output == nullptr) {
      KOLO_ASSIGN(output, borrow(bytes, kind_of(stream)));
    }
    if (entry.absent && count > 0) KOLO_TRY(fill_with_zeros(stream, output, bytes));
    // The schedule only reads its input space.
    auto* const input = entry.absent ? output : const_cast<std::byte*>(of_entries_[i].input);
    binding.input.append(input, count);
    binding.output.append(output, count);
    if (!spaced || i + 1 == plan.entries.size()) continue;
    binding.input.append_gap(device_gap(binding.type, count));
    binding.output.append_gap(device_gap(binding.type, count));
  }
  return {};
}

Status OperandMemory::bind_rows(const PlannedOperation& plan, DeviceStream* stream,
                                MemoryBinding& binding) {
  const RowLayout& layout = plan.layout;
  const std::size_t element = size_of(binding.type);
  const std::size_t input_bytes = layout.input_elements * element;
  const std::size_t output_bytes = layout.output_elements * element;
  std::byte* output = of_entries_.front().output;
  if (output == nullptr && output_bytes > 0) {
    KOLO_ASSIGN(output, borrow(output_bytes, kind_of(stream)));
  }
  auto* input = const_cast<std::byte*>(of_entries_.front().input);
  const bool own_part = plan.signature().kind == OperationKind::kReduceScatter &&
                        output == input + layout.own_offset * element;
  if (overlap({input, input_bytes}, {output, output_bytes}) && !own_part &&
      !plan.lies_in_place(communicator_)) {
    KOLO_ASSIGN(std::byte* const own, borrow(input_bytes, kind_of(stream)));
    KOLO_TRY(copy(stream, own, input, input_bytes));
    input = own;
  }
  binding.input.append(input, layout.input_elements);
  binding.output.append(output, layout.output_elements);
  return {};
}

}  // namespace kolo
