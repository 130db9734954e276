// Where an operation's operands lie: the users' memory, scratch of its own or of the window, and
// what is borrowed. Token holder only.
#include "runtime/base/check.h"
#include "runtime/base/overlap.h"
#include "runtime/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kolo {
namespace {

/// A block of what is summed, of which a rank packs and sums a part. With larger ones, operations
/// that run at once drive each other out of the caches; with smaller ones, there are more notices
/// to send, which is what counts where nothing is packed.
constexpr std::size_t kSummedBlock = 512 << 10;
constexpr std::size_t kLargeSummedBlock = 1 << 20;
constexpr std::size_t kLargeSum = 4 << 20;
/// Lists of places leave lanes of whole cache lines.
constexpr std::size_t kPlaceListGranule = 4096;
/// They take no more of a slot than one in so many bytes.
constexpr std::size_t kListsShare = 4;
/// What a device's kernels load at once, where all memory of a piece lies alike to it.
constexpr std::size_t kWideLoad = 16;

}  // namespace

std::size_t Operation::summed_bytes(std::uint64_t bytes) const {
  const std::size_t block = bytes < kLargeSum ? kSummedBlock : kLargeSummedBlock;
  const std::size_t slot = window_.slot_bytes(place_);
  return std::min(slot - place_list_bytes(slot), kSummedLanes * block);
}

std::size_t Operation::place_list_bytes(std::size_t slot_bytes) const {
  if (plan_.entries.size() < 2 || memory_kind() == MemoryKind::kDevice) return 0;
  const std::size_t lists = 2 * plan_.entries.size() * sizeof(std::uint64_t);
  const std::size_t bytes = (lists + kPlaceListGranule - 1) / kPlaceListGranule * kPlaceListGranule;
  return bytes <= slot_bytes / kListsShare ? bytes : 0;
}

void Operation::list_places(const Schedule& schedule, const MemoryBinding& binding,
                            WindowPlaces& places) const {
  const std::size_t slot = window_.slot_bytes(place_);
  const std::size_t bytes = place_list_bytes(slot);
  const bool has_room = schedule.scratch_elements * size_of(binding.type) + bytes <= slot;
  const std::span<std::byte> window = windows_[static_cast<std::size_t>(communicator_.rank())];
  const auto list = [&](const SegmentList& pieces, std::uint64_t& place, std::size_t offset) {
    if (place == WindowPlaces::kNowhere) return;
    place = has_room ? offset : WindowPlaces::kNowhere;
    if (!has_room) return;
    for (const Segment& piece : pieces.segments()) {
      const auto at = static_cast<std::uint64_t>(piece.data - window.data());
      std::memcpy(window.data() + offset, &at, sizeof at);
      offset += sizeof at;
    }
  };
  const std::size_t lists = places.scratch + slot - bytes;
  list(binding.input, places.input, lists);
  list(binding.output, places.output, lists + bytes / 2);
}

Status Operation::bind_scratch(const Schedule& schedule, WindowPlaces places,
                               MemoryBinding& binding) {
  if (schedule.scratch_elements == 0) return {};
  // Partial sums that peers do not read need no place in the window.
  const bool is_mapped = schedule.scratch_is_mapped;
  const SpaceLayout layout(binding, is_mapped ? 0 : schedule.scratch_elements,
                           schedule.partial_scratch_elements);
  if (layout.bytes > 0) {
    KOLO_ASSIGN(scratch_, arena_.allocate(layout.bytes, MemoryKind::kHeap));
    binding.partial_scratch = scratch_.data() + layout.partials_begin;
  }
  if (is_mapped) {
    slot_ = window_.take_slot(place_);
    places.scratch = *slot_;
    if (binding.input.size() > 1) list_places(schedule, binding, places);
    binding.output_stores = output_stores(binding);
    binding.mapped = {places, windows_, &window_.users_memory(), communicator_.ranks()};
    binding.scratch = windows_[static_cast<std::size_t>(communicator_.rank())].data() + *slot_;
    return {};
  }
  binding.scratch = scratch_.data();
  return {};
}

// What all ranks of the host read and write of a large operation leaves nothing of the caches: then
// results that nobody has read just before only drive out what is still to be read.
Stores Operation::output_stores(const MemoryBinding& binding) const {
  const std::size_t element = size_of(binding.type);
  const std::uint64_t bytes = (binding.input.elements() + binding.output.elements()) * element *
                              static_cast<std::uint64_t>(communicator_.size());
  if (bytes <= last_level_cache_bytes() || binding.output.elements() == 0) return Stores::kCached;
  const bool in_place = binding.input.elements() > 0 && binding.input.rest_at(0, element).data ==
                                                            binding.output.rest_at(0, element).data;
  return in_place ? Stores::kCached : Stores::kStreaming;
}

WindowPlaces Operation::places_of(const MemoryBinding& binding) const {
  WindowPlaces places;
  const std::size_t element = size_of(binding.type);
  const bool has_lists = place_list_bytes(window_.slot_bytes(place_)) > 0;
  const auto place_in = [&](const auto& arena, const SegmentList& list) -> std::uint64_t {
    const bool can_tell = list.size() == 1 || (list.size() > 1 && has_lists);
    if (arena == nullptr || !can_tell) return WindowPlaces::kNowhere;
    for (const Segment& piece : list.segments())
      if (!arena->offset_of(piece.data, piece.elements * element)) return WindowPlaces::kNowhere;
    const Segment& first = list.segments().front();
    return *arena->offset_of(first.data, first.elements * element);
  };
  const auto place_of = [&](const SegmentList& list) {
    return memory_kind() == MemoryKind::kDevice ? place_in(devices_.arena(), list)
                                                : place_in(window_.arena(), list);
  };
  if (binding.prescale.is_identity()) places.input = place_of(binding.input);
  places.output = place_of(binding.output);
  return places;
}

void Operation::free_scratch() {
  leave_device();
  scratch_ = {};
  borrowed_.clear();
  free_slot();
}

void Operation::free_slot() {
  if (slot_) window_.give_back_slot(place_, *slot_);
  slot_.reset();
}

Status Operation::bind(MemoryBinding& binding) {
  const Signature& signature = plan_.entries.front()->signature;
  binding.type = signature.type;
  binding.op = signature.op;
  const Scales scales = scales_of(plan_);
  binding.prescale = scales.pre;
  binding.postscale = scales.post;
  return is_whole() ? bind_allreduce(binding) : bind_rows(binding);
}

std::uint64_t Operation::gap_after(std::size_t entry) const {
  if (memory_kind() != MemoryKind::kDevice || over_nccl_ || entry + 1 == plan_.entries.size())
    return 0;
  const Signature& signature = plan_.entries[entry]->signature;
  const std::uint64_t granule = std::max<std::uint64_t>(kWideLoad / size_of(signature.type), 1);
  return (granule - signature.elements() % granule) % granule;
}

Status Operation::bind_allreduce(MemoryBinding& binding) {
  for (std::size_t i = 0; i < plan_.entries.size(); ++i) {
    const Entry& entry = *plan_.entries[i];
    const std::uint64_t count = entry.signature.elements();
    std::byte* output = memory_[i].output;
    if (output == nullptr) {
      KOLO_ASSIGN(output, borrow(entry.signature.bytes(), memory_kind()));
    }
    if (entry.absent && count > 0) KOLO_TRY(fill_with_zeros(output, entry.signature.bytes()));
    // The schedule only reads its input space.
    auto* input = entry.absent ? output : const_cast<std::byte*>(memory_[i].input);
    binding.input.append(input, count);
    binding.output.append(output, count);
    binding.input.append_gap(gap_after(i));
    binding.output.append_gap(gap_after(i));
  }
  return {};
}

Status Operation::bind_rows(MemoryBinding& binding) {
  const Entry& entry = *plan_.entries.front();
  const RowLayout& layout = plan_.layout;
  const std::size_t element = size_of(entry.signature.type);
  const std::size_t input_bytes = layout.input_elements * element;
  const std::size_t output_bytes = layout.output_elements * element;
  std::byte* output = memory_.front().output;
  if (output == nullptr && output_bytes > 0) {
    KOLO_ASSIGN(output, borrow(output_bytes, memory_kind()));
  }
  auto* input = const_cast<std::byte*>(memory_.front().input);
  const bool own_part = entry.signature.kind == OperationKind::kReduceScatter &&
                        output == input + layout.own_offset * element;
  if (overlap({input, input_bytes}, {output, output_bytes}) && !own_part && !lies_in_place()) {
    KOLO_ASSIGN(std::byte * copy, borrow(input_bytes, memory_kind()));
    KOLO_TRY(copy_bytes(copy, input, input_bytes));
    input = copy;
  }
  binding.input.append(input, layout.input_elements);
  binding.output.append(output, layout.output_elements);
  return {};
}

bool Operation::lies_in_place() const {
  const Entry& entry = *plan_.entries.front();
  const RowLayout& layout = plan_.layout;
  const std::size_t own_offset = layout.own_offset * size_of(entry.signature.type);
  const bool is_root = communicator_.index_of(entry.signature.root) == communicator_.rank();
  switch (entry.signature.kind) {
    case OperationKind::kAllgather:
      return entry.output != nullptr && entry.input == entry.output + own_offset;
    case OperationKind::kGather:
      return is_root && entry.output != nullptr && entry.input == entry.output + own_offset;
    case OperationKind::kScatter:
      return is_root && entry.input != nullptr && entry.output == entry.input + own_offset;
    case OperationKind::kAllreduce:
    case OperationKind::kBroadcast:
    case OperationKind::kAlltoall:
    case OperationKind::kReduceScatter:
    case OperationKind::kBarrier:
    case OperationKind::kJoin:
    case OperationKind::kAddProcessSet:
    case OperationKind::kRemoveProcessSet:
    case OperationKind::kSend:
    case OperationKind::kReceive:
      return false;
  }
  return false;
}

Result<std::byte*> Operation::borrow(std::uint64_t bytes, MemoryKind kind) {
  KOLO_ASSIGN(ArenaBlock block, arena_.allocate(bytes, kind));
  borrowed_.push_back(std::move(block));
  return borrowed_.back().data();
}

MemoryKind Operation::memory_kind() const {
  const bool on_device = phase_ != Phase::kNone && !staged_;
  return on_device ? MemoryKind::kDevice : MemoryKind::kHeap;
}

Status Operation::fill_with_zeros(std::byte* memory, std::size_t bytes) {
  if (memory_kind() == MemoryKind::kDevice) return stream_->zero(memory, bytes);
  std::memset(memory, 0, bytes);
  return {};
}

Status Operation::copy_bytes(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (memory_kind() == MemoryKind::kDevice) return stream_->copy(destination, source, bytes);
  std::memcpy(destination, source, bytes);
  return {};
}

}  // namespace kolo
