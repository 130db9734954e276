// StagedCarrier: copies device memory to pinned host memory, runs a schedule there, and copies the
// results back (CarrierKind::kStaged). For small calls, and where devices do not reach each other.
// Token holder only.
#pragma once

#include "runtime/operation/on_device.h"
#include "runtime/operation/schedule_carrier.h"

#include <memory>

namespace kolo {

class StagedCarrier final : public OnDevice {
 public:
  StagedCarrier(const RankServices& rank, const GroupServices& group)
      : OnDevice(rank, group), on_host_(rank, group) {}

  std::string_view algorithm() const override { return on_host_.algorithm(); }
  std::string describe() const override;
  StepTrace::Costs costs() const override { return on_host_.costs(); }

 private:
  Status begin(const Route& route, const PlannedOperation& plan) override;
  Result<bool> advance_to_enqueued(bool& moved) override;
  Status schedule_status() const override { return on_host_.status(); }
  void give_back() override;
  Status copy_in();
  Status copy_out();

  ScheduleCarrier on_host_;
  const Route* route_ = nullptr;
  const PlannedOperation* plan_ = nullptr;
  std::shared_ptr<DeviceEvent> copied_in_;  ///< null once the schedule has started
};

}  // namespace kolo
