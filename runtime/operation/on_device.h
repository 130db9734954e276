// OnDevice: what the carriers of device memory have in common. All their work is enqueued on a
// stream of their own, after what the callers' streams have yet to write; the Works complete when
// it is enqueued, and the memory is given back when the device is done. Token holder only.
#pragma once

#include "runtime/operation/carrier.h"
#include "runtime/operation/services.h"

#include <memory>

namespace kolo {

class OnDevice : public Carrier {
 public:
  OnDevice(const RankServices& rank, const GroupServices& group) : rank_(rank), group_(group) {}

  Status start(const Route& route, const PlannedOperation& plan) final;
  bool advance() final;
  bool done() const final { return state_ == State::kDone || !status_.ok(); }
  bool enqueued() const final { return state_ == State::kEnqueued || done(); }
  const Status& status() const final { return status_; }
  void release() final;
  std::shared_ptr<DeviceEvent> device_event() const final { return enqueued_; }
  bool waits_for_device() const final { return state_ != State::kIdle; }

 protected:
  /// Begins, after the events that `stream_` waits for.
  virtual Status begin(const Route& route, const PlannedOperation& plan) = 0;
  /// Goes on; sets `moved` if anything was done. True: everything is enqueued.
  virtual Result<bool> advance_to_enqueued(bool& moved) = 0;
  /// Failure of the running schedule, which names this rank already.
  virtual Status schedule_status() const { return {}; }
  /// While the device works: an error that the device does not report itself.
  virtual Status check_enqueued() { return {}; }
  /// Gives memory back. The device must not use it any more.
  virtual void give_back() = 0;

  const RankServices& rank_;
  const GroupServices& group_;
  std::unique_ptr<DeviceStream> stream_;       ///< made on first use
  std::unique_ptr<DeviceStream> back_stream_;  ///< for copies out of staging; made on first use

 private:
  enum class State : std::uint8_t { kIdle, kRunning, kEnqueued, kDone };

  Status advance_state(bool& moved);
  /// An event after all work enqueued so far, on both streams.
  Result<std::shared_ptr<DeviceEvent>> record_all();

  State state_ = State::kIdle;
  Status status_;
  std::shared_ptr<DeviceEvent> enqueued_;  ///< event after the last work
};

}  // namespace kolo
