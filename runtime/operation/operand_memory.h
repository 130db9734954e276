// OperandMemory: where an operation's tensors lie: in the users' memory, in memory that stands in
// for it, or in memory borrowed from the arena. Binds a schedule's input and output spaces to it.
// Member of a carrier; token holder only.
#pragma once

#include "runtime/communicator/communicator.h"
#include "runtime/execution/memory_binding.h"
#include "runtime/memory/arena.h"
#include "runtime/operation/planned_operation.h"

#include <kolo/error.h>

#include <cstddef>
#include <vector>

namespace kolo {

class OperandMemory {
 public:
  OperandMemory(Arena& arena, const Communicator& communicator)
      : arena_(arena), communicator_(communicator) {}

  /// Each entry has its own memory.
  void reset(const PlannedOperation& plan);
  /// An entry has this memory instead.
  void substitute(std::size_t entry, const std::byte* input, std::byte* output) {
    of_entries_[entry] = {input, output};
  }
  std::byte* output_of(std::size_t entry) const { return of_entries_[entry].output; }

  /// Type, factors, input and output. `stream`: the memory is a device's, and is written there;
  /// null: it is the host's. `spaced`: fused tensors have device_gap() between them. An absent
  /// input is filled with zeros, and an output that is missing is borrowed. kOutOfMemory.
  Status bind(const PlannedOperation& plan, DeviceStream* stream, bool spaced,
              MemoryBinding& binding);

  /// kOutOfMemory. Until release().
  Result<std::byte*> borrow(std::size_t bytes, MemoryKind kind);
  void release() { borrowed_.clear(); }

 private:
  struct Buffers {
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
  };

  Status bind_whole(const PlannedOperation& plan, DeviceStream* stream, bool spaced,
                    MemoryBinding& binding);
  Status bind_rows(const PlannedOperation& plan, DeviceStream* stream, MemoryBinding& binding);

  Arena& arena_;
  const Communicator& communicator_;
  std::vector<Buffers> of_entries_;
  std::vector<ArenaBlock> borrowed_;
};

/// Where an operation's input and output lie in this rank's arena, so that peers can read and write
/// them in place. With several tensors, all must lie there, and `has_lists` says that the lists of
/// their offsets have room; the result then has the first tensor's offset. `arena`: SharedArena or
/// DeviceArena; null: no arena.
template <class UsersArena>
WindowOffsets offsets_in(const UsersArena* arena, const MemoryBinding& binding, bool has_lists) {
  const std::size_t element = size_of(binding.type);
  const auto offset_of = [&](const SegmentList& list) -> std::uint64_t {
    const bool can_tell = list.size() == 1 || (list.size() > 1 && has_lists);
    if (arena == nullptr || !can_tell) return WindowOffsets::kNowhere;
    for (const Segment& piece : list.segments())
      if (!arena->offset_of(piece.data, piece.elements * element)) return WindowOffsets::kNowhere;
    const Segment& first = list.segments().front();
    return *arena->offset_of(first.data, first.elements * element);
  };
  WindowOffsets offsets;
  if (binding.prescale.is_identity()) offsets.input = offset_of(binding.input);
  offsets.output = offset_of(binding.output);
  return offsets;
}

}  // namespace kolo
