// Driver: decides which thread calls Cycle::step(), and how it waits. A background thread drives
// while no other thread does. A thread that waits for its Work takes the progress token and drives
// itself, which saves a hand-off between threads. Waiting is a short spin while something is due,
// then a bounded block on one set of descriptors: submission, transport, watched processes.
#pragma once

#include "runtime/base/progress_token.h"
#include "runtime/base/waker.h"
#include "runtime/cycle/cycle.h"
#include "runtime/cycle/group_registry.h"
#include "runtime/cycle/ordered_arguments.h"
#include "runtime/observe/timeline.h"
#include "transport/transport.h"

#include <kolo/work.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace kolo {

/// May outlive what it drives: a Work holds it weakly, and a thread that waits for a Work holds it
/// meanwhile. After stop() it does not touch what it drove.
class Driver final : public Work::Driver {
 public:
  /// `may_spin`: this host has a core for each of its ranks.
  Driver(Cycle& cycle, GroupRegistry& groups, Transport& transport, Waker& waker,
         Timeline& timeline, bool may_spin);
  /// Precondition: stopped, or never started.
  ~Driver() override = default;

  /// Starts the background thread.
  void start();

  /// Work::Driver: drives until `work` is done or `until` has passed. False if another thread
  /// already drives for a user, or the driver has stopped.
  bool drive(Work& work, std::chrono::steady_clock::time_point until) override;

  /// Runs a blocking in-order call through the exchange, all in the caller's thread. False if the
  /// exchange does not carry the call, cannot begin it, or has not finished it after a short spin.
  /// Then the caller submits the call to the queue, which goes on from there. May be called after
  /// stop(), when what it drives may be gone: returns false. Precondition: unless the process set
  /// is the world, the caller keeps the set from being removed until the call is in the queue.
  bool call(const OrderedArguments& call);
  /// As call(), for a caller that does not wait: false also if another thread holds the token, or
  /// if the call is not over as soon as the queue would have taken it.
  bool start_call(const OrderedArguments& call);

  /// Ends the background thread, sends waiting threads out of drive(), and runs `last` as the last
  /// token holder. Nobody drives afterwards, and further calls do nothing. False if at `until` a
  /// thread still holds the token or is still in drive(), for example in a signal handler that does
  /// not return. That thread may go on driving.
  template <class Last>
  bool stop(Last&& last, std::chrono::steady_clock::time_point until) {
    auto hold = stop_threads(until);
    if (hold) last();
    return hold || token_.is_closed();
  }

  /// Runs `read` while no other thread drives. A thread that waits for its Work leaves the driving
  /// to the background thread meanwhile.
  template <class Read>
  void with_token(Read&& read) {
    asked_.fetch_add(1, std::memory_order_release);
    waker_.wake();
    const auto hold = token_.acquire();
    asked_.fetch_sub(1, std::memory_order_release);
    if (hold) read();
  }

 private:
  using Clock = std::chrono::steady_clock;

  class Pause;
  class Block;
  class Guest;
  /// How often a thread looks again before it blocks, or gives the exchange up.
  struct Spin {
    int polls;
    int yields;
  };

  void run();
  /// The loop of drive().
  void step_until_done(const Work& work, Clock::time_point until, Block& block);
  /// True once the exchange has nothing to wait for any more.
  bool spin_on(Exchange& exchange, Spin spin);
  /// call() with the token, which these release.
  bool call_holding(ProgressToken::Hold hold, const OrderedArguments& call, Spin spin);
  bool run_holding(ProgressToken::Hold hold, Group& group, Exchange::Request request, Spin spin);
  std::optional<ProgressToken::Hold> stop_threads(Clock::time_point until);

  Cycle& cycle_;
  GroupRegistry& groups_;
  Transport& transport_;
  Waker& waker_;
  Timeline& timeline_;
  const bool may_spin_;
  ProgressToken token_;
  Clock::duration patience_ = {};  ///< token holder; see Pause
  std::atomic<bool> stopping_ = false;
  std::atomic<int> asked_ = 0;   ///< threads in with_token() that wait for the token
  std::atomic<int> guests_ = 0;  ///< threads in drive()
  std::thread thread_;
};

}  // namespace kolo
