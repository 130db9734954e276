// LocalStep: carries out a schedule's reduces and copies on memory that may be scattered. A part of
// the executor; keeps its working space from step to step.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/device/device.h"
#include "runtime/execution/memory_binding.h"

#include <kolo/error.h>

#include <optional>
#include <span>
#include <vector>

namespace kolo {

/// Of its elements.
DataType type_of(const MemoryBinding& binding, const Operand& operand);
/// The memory from `operand`'s element `skip` on that is contiguous, at most up to its end. Empty
/// data where the binding has no such memory.
Segment resolve(const MemoryBinding& binding, const Operand& operand, Role role,
                std::uint64_t skip);

/// Whether peers have the user's memory mapped, for which this copy's scratch would stand in.
bool is_void(const Schedule& schedule, const Step& step, const MemoryBinding& binding);
/// Whether operands in kInput are scaled first, and what the result is multiplied by.
bool has_prescale(const Step& step, const MemoryBinding& binding);
Scale postscale(const Step& step, const MemoryBinding& binding);
/// Whether an operand is a peer's users' memory, and not the scratch that stands in for it.
bool is_peers_users(const MemoryBinding& binding, const Operand& operand, Role role);
/// Asked within a touch of them: kAborted if they have got their memory back. Precondition:
/// is_peers_users(), and there is MappedMemory::users.
Status may_touch_users(const MemoryBinding& binding, const Operand& operand);
/// kInternal: element `skip` of the operand is bound to no memory.
Error unbound(const Operand& operand, std::uint64_t skip);

class LocalStep {
 public:
  explicit LocalStep(const Device& device) : device_(device) {}

  /// Runs one kReduce or kCopy. Fails with kInternal when an operand is not bound, or several ones
  /// were to be scaled.
  Status run(const Schedule& schedule, const Step& step, const MemoryBinding& binding);

 private:
  struct Cursor {
    Operand operand;
    Role role;
    DataType type;
    Segment piece;
  };

  /// Whether the peers whose users' memory the step takes have not got it back; `touch` says that
  /// it is taken, if any is.
  Status may_touch(const MemoryBinding& binding, std::optional<UsersMemory::Touch>& touch) const;
  /// How results go into the destinations, of which all are users' memory or none is.
  Stores stores(const Step& step, const MemoryBinding& binding) const;
  /// One stretch in which every operand is contiguous: cursors_[0 … sources) are the sources.
  Status run_piece(const Step& step, const MemoryBinding& binding, std::uint64_t elements);
  Status reduce_piece(const Step& step, const MemoryBinding& binding, std::uint64_t elements);
  /// Of sources_ into destinations_.
  void combine(const Step& step, const MemoryBinding& binding, std::uint64_t elements,
               Stores stores);
  void copy_piece(const Step& step, const MemoryBinding& binding, std::uint64_t elements);

  const Device& device_;
  std::vector<Cursor> cursors_;
  std::vector<const std::byte*> sources_;
  std::vector<TypedSource> typed_sources_;
  std::vector<std::byte*> destinations_;
  std::vector<std::byte> scaled_;  ///< input, where the destination is no place for it
};

}  // namespace kolo
