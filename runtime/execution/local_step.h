// LocalStep: runs a schedule's reduces and copies on memory that may be scattered. Part of the
// executor; reuses its buffers from step to step.
#pragma once

#include "runtime/collectives/schedule.h"
#include "runtime/device/device.h"
#include "runtime/execution/memory_binding.h"

#include <kolo/error.h>

#include <optional>
#include <span>
#include <vector>

namespace kolo {

/// Type of the operand's elements.
DataType type_of(const MemoryBinding& binding, const Operand& operand);
/// The contiguous memory from the operand's element `skip` on, at most up to its end. Null data if
/// the binding has no such memory.
Segment resolve(const MemoryBinding& binding, const Operand& operand, Role role,
                std::uint64_t skip);

/// Whether the step is omitted: it copies to or from scratch that stands in for user memory, but
/// peers access the user memory itself.
bool is_void(const Schedule& schedule, const Step& step, const MemoryBinding& binding);
/// Whether operands in kInput are scaled first; and the factor of the result.
bool has_prescale(const Step& step, const MemoryBinding& binding);
Scale postscale(const Step& step, const MemoryBinding& binding);
/// Whether an operand is a peer's user memory, not the scratch that stands in for it.
bool is_peers_users(const MemoryBinding& binding, const Operand& operand, Role role);
/// kAborted if the peer's users have got their memory back. Call it within a touch of the memory.
/// Preconditions: is_peers_users() and MappedMemory::users is set.
Status may_touch_users(const MemoryBinding& binding, const Operand& operand);
/// kInternal: element `skip` of the operand is not bound to memory.
Error unbound(const Operand& operand, std::uint64_t skip);

class LocalStep {
 public:
  explicit LocalStep(const Device& device) : device_(device) {}

  /// Runs one kReduce or kCopy. kInternal if an operand is not bound, or several would be
  /// prescaled.
  Status run(const Schedule& schedule, const Step& step, const MemoryBinding& binding);

 private:
  struct Cursor {
    Operand operand;
    Role role;
    DataType type;
    Segment piece;
  };

  /// Fails if a peer has got back user memory that the step uses. `touch` is set if the step uses
  /// any.
  Status may_touch(const MemoryBinding& binding, std::optional<UsersMemory::Touch>& touch) const;
  /// How results are stored. Either all destinations are user memory or none is.
  Stores stores(const Step& step, const MemoryBinding& binding) const;
  /// One stretch in which every operand is contiguous; the first cursors_ are the sources.
  Status run_piece(const Step& step, const MemoryBinding& binding, std::uint64_t elements);
  Status reduce_piece(const Step& step, const MemoryBinding& binding, std::uint64_t elements);
  /// Makes the one source that is an input a scaled one.
  Status prescale(const Step& step, const MemoryBinding& binding, std::uint64_t elements);
  Status adasum(const Step& step, const MemoryBinding& binding, std::uint64_t elements);
  /// Reduces sources_ into destinations_.
  void combine(const Step& step, const MemoryBinding& binding, std::uint64_t elements,
               Stores stores);
  void copy_piece(const Step& step, const MemoryBinding& binding, std::uint64_t elements);

  const Device& device_;
  std::vector<Cursor> cursors_;
  std::vector<const std::byte*> sources_;
  std::vector<TypedSource> typed_sources_;
  std::vector<std::byte*> destinations_;
  std::vector<std::byte> scaled_;  ///< prescaled input that cannot be kept in the destination
};

}  // namespace kolo
