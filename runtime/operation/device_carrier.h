// DeviceCarrier: runs a schedule on device memory (CarrierKind::kDevice). Its steps are enqueued on
// streams and follow each other there; the host waits for the device only before it tells another
// rank. Inside a host peers reach each other through device windows. What goes over the network
// passes, piece by piece, through memory that network cards reach, or through pinned host memory.
// Token holder only.
#pragma once

#include "runtime/execution/executor.h"
#include "runtime/operation/on_device.h"
#include "runtime/operation/operand_memory.h"

#include <optional>
#include <span>
#include <vector>

namespace kolo {

class DeviceCarrier final : public OnDevice {
 public:
  DeviceCarrier(const RankServices& rank, const GroupServices& group);

  std::string_view algorithm() const override { return executor_.algorithm(); }
  std::string describe() const override { return executor_.dump_state(); }
  StepTrace::Costs costs() const override { return executor_.costs(); }

 private:
  Status begin(const Route& route, const PlannedOperation& plan) override;
  Result<bool> advance_to_enqueued(bool& moved) override;
  Status schedule_status() const override { return executor_.status(); }
  void give_back() override;
  Status bind_staging(const Schedule& schedule, bool network_is_direct, MemoryBinding& binding);

  const int partition_;
  const std::vector<std::span<std::byte>> windows_;  ///< device windows, by the communicator's rank
  OperandMemory memory_;
  Executor executor_;
  ArenaBlock staging_;
  std::optional<std::size_t> slot_;  ///< borrowed from the device's window
};

}  // namespace kolo
