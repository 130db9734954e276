// ScheduleCarrier: runs a schedule on host memory (CarrierKind::kSchedule), its scratch in a slot
// of the window or in memory of its own. Token holder only.
#pragma once

#include "runtime/execution/executor.h"
#include "runtime/operation/carrier.h"
#include "runtime/operation/operand_memory.h"
#include "runtime/operation/services.h"

#include <optional>
#include <span>
#include <vector>

namespace kolo {

class ScheduleCarrier final : public Carrier {
 public:
  ScheduleCarrier(const RankServices& rank, const GroupServices& group);

  Status start(const Route& route, const PlannedOperation& plan) override;
  /// start(), on the memory that `memory()` already names.
  Status start_on_memory(const Route& route, const PlannedOperation& plan);
  OperandMemory& memory() { return memory_; }
  /// Gives the window's slot back. Precondition: the executor is done.
  void release_slot();

  bool advance() override;
  bool done() const override { return !mismatch_.ok() || executor_.done() || executor_.failed(); }
  const Status& status() const override { return mismatch_.ok() ? executor_.status() : mismatch_; }
  void release() override;
  std::string_view algorithm() const override { return executor_.algorithm(); }
  std::string describe() const override { return executor_.dump_state(); }
  StepTrace::Costs costs() const override { return executor_.costs(); }

 private:
  Status bind_scratch(const Schedule& schedule, const PlannedOperation& plan, WindowOffsets offsets,
                      MemoryBinding& binding);
  /// Writes the offsets of all tensors to the end of the slot, and replaces the first tensor's
  /// offset by that of the list.
  void list_offsets(const Schedule& schedule, std::size_t list_bytes, const MemoryBinding& binding,
                    WindowOffsets& offsets) const;
  std::size_t list_bytes(const PlannedOperation& plan) const;
  std::span<std::byte> own_window() const {
    return windows_[static_cast<std::size_t>(group_.communicator.rank())];
  }

  const RankServices& rank_;
  const GroupServices& group_;
  const int partition_;
  const std::vector<std::span<std::byte>> windows_;  ///< by the communicator's rank
  OperandMemory memory_;
  Executor executor_;
  ArenaBlock scratch_;
  std::optional<std::size_t> slot_;             ///< borrowed from the window
  std::optional<Exchange::Request> announces_;  ///< in-order call that is not announced yet
  OrderedCall announced_;
  std::size_t compared_ = 0;  ///< ranks that have announced the same call
  Status mismatch_;           ///< another rank has announced another call
};

}  // namespace kolo
