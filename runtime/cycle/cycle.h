// Cycle: the loop over the stages. step() is one pass; cycle.cc lists the stages in order. The
// holder of the progress token calls it: the background thread, or a thread that waits for a Work.
#pragma once

#include "runtime/base/log.h"
#include "runtime/cycle/context.h"
#include "runtime/cycle/failures.h"
#include "runtime/cycle/group_registry.h"
#include "runtime/cycle/health_check.h"
#include "runtime/cycle/peers.h"

#include <kolo/config.h>

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

class Cycle final : public TransportListener {
 public:
  using Clock = std::chrono::steady_clock;

  Cycle(GroupRegistry& groups, const RankServices& services, const LinkCosts& links,
        const Config& config, const Log& log);

  /// One pass over all stages; never blocks. True if anything moved.
  bool step();

  /// Group::begin_exchange() and end_exchange().
  bool begin_exchange(Group& group, Exchange::Request& request) {
    return group.begin_exchange(context_, request);
  }
  void end_exchange(Group& group, const Exchange::Request& request) {
    group.end_exchange(context_, request);
  }

  /// The configuration has changed.
  void forget_policy() { context_.known_policy.reset(); }

  /// Operations are running, agreed or being negotiated: a short spin pays.
  bool has_work() const;
  /// Sends or receives are not matched yet.
  bool has_messages() const;
  /// Transfers may be under way: block with a short bound.
  bool is_communicating() const;
  /// An operation waits for an accelerator, which wakes nobody: block with a shorter bound.
  bool is_computing() const;
  /// Everything has failed, and step() does nothing any more.
  bool is_over() const { return world_.abort().raised(); }
  /// Latest time to call step() if nothing arrives.
  Clock::time_point next_timer() const;
  /// Descriptor of the watched processes; negative if there are none. If readable: call
  /// check_processes(), and step() then checks them.
  int watched_descriptor() const { return health_.watched_descriptor(); }
  void check_processes() { health_.check_soon(); }

  /// Before the first step: fails if a rank was lost meanwhile.
  Status losses();
  /// Before the first step: this rank fails in init. Tells the ranks whose init has ended, which
  /// no longer hear from the rendezvous.
  void give_up(const Error& why);
  /// Before the first step: Peers::open_first_links().
  void open_first_links() { peers_.open_first_links(); }

  /// Fails everything, on this rank and on the other ranks.
  void abort(Error error);
  /// Ends one process set, on this rank and on its other ranks; all others go on.
  void abort_set(Group& group, const Error& error);
  /// Ends this rank's part: operations under way fail with kShutdown, and the other ranks are told.
  void shut_down();

  void on_message(int peer, std::span<const std::byte> message) override;
  void on_peer_failed(int peer, const Error& error) override;
  void on_failed(const Error& error) override { failures_.note(error); }

 private:
  /// A message for a group that this rank has not added yet.
  struct EarlyMessage {
    std::uint32_t group;
    int peer;
    std::string bytes;
  };

  void on_lost(int peer, const Error& error, Loss loss);
  template <class Stage>
  bool for_each_group(Stage&& stage);
  bool complete();
  /// Ends process sets that other ranks have aborted.
  void end_aborted_sets();

  void on_group_message(Group& group, int peer, const Message& message);
  Result<std::int64_t> change_process_sets(const Signature& signature);
  Result<std::int64_t> add_process_set(const Signature& signature);

  void fail();
  /// Waits briefly for another rank's failure if the one noted here is kPeerLost or kAborted
  /// without a culprit.
  void hear_reason();
  void tell_of(const Failure& failure);
  void tell_culprit(const Failure& failure);
  void leave_plans();
  Status send_shutdown_notices();
  void complete_all(const Error& error);

  GroupRegistry& groups_;
  Communicator& world_;
  const RankServices& services_;
  const Log& log_;
  CycleTrace trace_;
  Failures failures_;
  Peers peers_;
  CycleContext context_;
  HealthCheck health_;
  std::vector<EarlyMessage> early_messages_;
  /// Process sets that other ranks have aborted, for end_aborted_sets(): messages arrive also while
  /// a stage works on the set.
  std::vector<std::pair<std::uint32_t, Error>> aborts_heard_;
};

}  // namespace kolo
