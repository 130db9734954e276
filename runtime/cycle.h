// Cycle: the loop over the stages. step() is one pass; runtime/cycle.cc reads as their list.
// Whoever holds the progress token calls it: the background thread, or a thread that waits.
#pragma once

#include "runtime/base/log.h"
#include "runtime/communicator/control_plane.h"
#include "runtime/health/abort_notice.h"
#include "runtime/health/departures.h"
#include "runtime/health/process_watch.h"
#include "runtime/negotiation/controller.h"
#include "runtime/operation.h"
#include "runtime/submission/ordered_queue.h"
#include "runtime/submission/tensor_table.h"

#include <kolo/config.h>

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace kolo {

class Cycle final : public TransportListener {
 public:
  using Clock = std::chrono::steady_clock;

  Cycle(Communicator& communicator, Transport& transport, const Device& device, TensorTable& table,
        OrderedQueue& ordered, HostWindow& window, const Config& config, const Log& log);

  /// One pass over all stages, never blocking; true if anything moved.
  bool step();

  /// Operations are running, agreed or being negotiated: worth a short spin.
  bool has_work() const;
  /// Transfers may be under way: poll with a tight bound.
  bool is_communicating() const { return !running_.empty(); }
  /// When step() must be called at the latest although nothing arrives.
  Clock::time_point next_timer() const;
  /// Descriptors of the processes to watch; readable: call step().
  const std::vector<int>& watched_descriptors() const { return watch_.descriptors(); }
  /// One of them was readable: the next step looks at them.
  void check_processes() { next_check_ = Clock::time_point::min(); }

  /// Ends this rank's part: what is under way fails with kShutdown, the others are told.
  void shut_down();

  const Controller::Counters& negotiation_counters() const { return controller_.counters(); }

  void on_message(int peer, std::span<const std::byte> message) override;
  void on_peer_failed(int peer, const Error& error) override;

 private:
  struct Failure {
    Error error;
    int culprit = Abort::kNoCulprit;
    bool tell_others = true;
  };

  // The stages, in the order of a gradient's way.
  bool drain();
  bool announce();
  bool decide();
  bool plan();
  void plan_list();
  bool start();
  bool advance();
  bool complete();
  void check_health();
  void hear_last_words();

  void note(Status status);
  void note_failure(Failure failure);
  void fail();
  void complete_all(const Error& error);
  /// To every rank that is still there, but for the culprit; the first failure is returned.
  Status tell_others(MessageKind kind, std::string_view payload, int culprit);
  void finish(const Entry& entry, Status status, Outcome outcome);
  std::unique_ptr<Operation> take_idle_operation();

  Communicator& communicator_;
  Transport& transport_;
  const Device& device_;
  TensorTable& table_;
  OrderedQueue& ordered_;
  HostWindow& window_;
  const Config& config_;
  const Log& log_;

  ControlPlane control_plane_;
  Controller controller_;
  ScheduleCache schedules_;
  Arena arena_;
  ProcessWatch watch_;
  Departures departures_;

  bool flush_ = false;
  std::vector<Entry> drained_;
  std::vector<Agreed> agreed_;
  std::deque<PlannedOperation> planned_;
  std::vector<std::unique_ptr<Operation>> running_;
  std::vector<std::unique_ptr<Operation>> idle_;
  std::array<std::uint64_t, kDoorCount> next_sequence_ = {};
  std::optional<Failure> failure_;
  Clock::time_point next_check_;
};

}  // namespace kolo
