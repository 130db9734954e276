#include "runtime/operation/operation.h"

#include "runtime/base/check.h"
#include "runtime/operation/device_carrier.h"
#include "runtime/operation/exchange_carrier.h"
#include "runtime/operation/nccl_carrier.h"
#include "runtime/operation/schedule_carrier.h"
#include "runtime/operation/staged_carrier.h"

#include <fmt/format.h>

#include <utility>

namespace kolo {

Operation::~Operation() {
  if (carrier_ != nullptr) carrier_->release();
}

Status Operation::start(PlannedOperation plan, const Resources& resources, const Policy& policy) {
  plan_ = std::move(plan);
  resources_ = &resources;
  policy_ = &policy;
  works_completed_ = false;
  failure_ = take_route(/*may_exchange=*/true);
  return failure_;
}

Status Operation::take_route(bool may_exchange) {
  started_at_ = Clock::now();
  Routed wanted{shape_of(plan_, group_.communicator), resources_->version, policy_->version};
  wanted.call.may_exchange = may_exchange;
  if (wanted.resources == 0 || wanted != routed_) {
    route_ = route(wanted.call, *resources_, *policy_);
    routed_ = std::move(wanted);
  }
  if (may_exchange && resumes_two_rank()) return {};
  carrier_ = &carrier_of(route_.carrier);
  Status started = carrier_->start(route_, plan_);
  if (started.ok() || !routed_.call.on_device) return started;
  Error error = std::move(started).error();
  error.message =
      fmt::format("rank {}: {}: {}", group_.communicator.world().rank(), describe(), error.message);
  return error;
}

Carrier& Operation::carrier_of(CarrierKind kind) {
  std::unique_ptr<Carrier>& carrier = carriers_[static_cast<std::size_t>(kind)];
  if (carrier != nullptr) return *carrier;
  switch (kind) {
    case CarrierKind::kExchange:
      carrier = std::make_unique<ExchangeCarrier>(group_);
      break;
    case CarrierKind::kSchedule:
      carrier = std::make_unique<ScheduleCarrier>(rank_, group_);
      break;
    case CarrierKind::kDevice:
      carrier = std::make_unique<DeviceCarrier>(rank_, group_);
      break;
    case CarrierKind::kStaged:
      carrier = std::make_unique<StagedCarrier>(rank_, group_);
      break;
    case CarrierKind::kNccl:
      carrier = std::make_unique<NcclCarrier>(rank_, group_);
      break;
  }
  return *carrier;
}

bool Operation::resumes_two_rank() {
  if (route_.carrier != CarrierKind::kSchedule || plan_.mode != SubmissionMode::kInOrder ||
      group_.exchange.limits().two_rank == 0)
    return false;
  Carrier& exchange = carrier_of(CarrierKind::kExchange);
  if (!static_cast<ExchangeCarrier&>(exchange).resume_two_rank(plan_)) return false;
  carrier_ = &exchange;
  return true;
}

bool Operation::is_declined() const {
  return route_.carrier == CarrierKind::kExchange && carrier_->done() &&
         static_cast<const ExchangeCarrier&>(*carrier_).declined();
}

bool Operation::advance() {
  if (!failure_.ok()) return false;
  const bool moved = carrier_->advance();
  if (!is_declined()) return moved;
  failure_ = take_route(/*may_exchange=*/false);
  return true;
}

void Operation::drop_works() {
  works_completed_ = true;
  for (EntryPtr& entry : plan_.entries) entry->work.reset();
}

PlannedOperation Operation::finish() {
  carrier_->release();
  return std::exchange(plan_, {});
}

}  // namespace kolo
