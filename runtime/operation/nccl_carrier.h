// NcclCarrier: gives an all-reduce of device memory to NCCL (CarrierKind::kNccl,
// KOLO_OPERATIONS=nccl). Entries are fused as usual, but there is no schedule. Token holder only.
#pragma once

#include "runtime/nccl/nccl_allreduce.h"
#include "runtime/operation/on_device.h"
#include "runtime/operation/operand_memory.h"

namespace kolo {

class NcclCarrier final : public OnDevice {
 public:
  NcclCarrier(const RankServices& rank, const GroupServices& group)
      : OnDevice(rank, group), memory_(rank.arena, group.communicator) {}

  std::string_view algorithm() const override { return "nccl"; }
  std::string describe() const override { return allreduce_.describe(); }

 private:
  Status begin(const Route& route, const PlannedOperation& plan) override;
  Result<bool> advance_to_enqueued(bool& moved) override;
  Status check_enqueued() override { return allreduce_.check(); }
  void give_back() override { memory_.release(); }

  OperandMemory memory_;
  NcclAllreduce allreduce_;
};

}  // namespace kolo
