// Driver: who calls Cycle::step(), and how it waits. A background thread drives while nobody else
// does; a thread that waits for its Work takes the progress token and drives itself, which spares
// the hand-off between threads. Waiting is a short spin while something is due, then a block on one
// set of descriptors (submission, transport, watched processes) with a bound.
#pragma once

#include "runtime/base/progress_token.h"
#include "runtime/base/waker.h"
#include "runtime/cycle.h"
#include "runtime/group.h"
#include "runtime/observe/timeline.h"
#include "runtime/ordered_arguments.h"
#include "transport/transport.h"

#include <kolo/work.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

namespace kolo {

/// It may outlive what it drives: a Work holds it weakly, and a thread that waits for one holds it
/// meanwhile. After stop() it touches nothing of that any more.
class Driver final : public Work::Driver {
 public:
  /// `may_spin`: this host has a core for every one of its ranks.
  Driver(Cycle& cycle, GroupRegistry& groups, Transport& transport, Waker& waker,
         Timeline& timeline, bool may_spin);
  /// Precondition: stopped, or not started.
  ~Driver() override = default;

  /// Starts the background thread.
  void start();

  /// Work::Driver: drives until `work` is done or `until` has passed. False if another thread
  /// drives on a user's behalf already, or the driver has stopped.
  bool drive(Work& work, std::chrono::steady_clock::time_point until) override;

  /// The quick way of a small call of a process set's ordered door, all within the caller's thread.
  /// False if it is not done at the end of a short spin, or could not begin, or is a schedule's
  /// after all: then the caller submits it to the ordered door, which goes on from there. Sets the
  /// request's number. Precondition: the set's boards take it.
  bool run(std::uint32_t set, OneShot::Request& request);
  /// The same of a call on the world, whatever its size, and also after stop(), when what it drives
  /// may be gone: then false. run() may be asked again for what this could not.
  bool try_call(const OrderedArguments& call);

  /// Ends the background thread, sends waiting threads out of drive(), and runs `last` as the last
  /// holder of the token. Nobody drives afterwards. Further calls do nothing. False if a thread has
  /// kept the token until then, or is still within drive(), as one is whose signal handler does not
  /// return: then it may drive again.
  template <class Last>
  bool stop(Last&& last, std::chrono::steady_clock::time_point until) {
    auto hold = stop_threads(until);
    if (hold) last();
    return hold || token_.is_closed();
  }

  /// Runs `read` while nobody else drives: a thread that waits for its Work leaves the driving to
  /// the background thread then.
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

  void run();
  /// run(), and releases the token.
  bool run_holding(ProgressToken::Hold hold, Group& group, OneShot::Request& request);
  std::optional<ProgressToken::Hold> stop_threads(Clock::time_point until);

  Cycle& cycle_;
  GroupRegistry& groups_;
  Transport& transport_;
  Waker& waker_;
  Timeline& timeline_;
  const bool may_spin_;
  ProgressToken token_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> asked_ = 0;   ///< threads in with_token() that have not got it yet
  std::atomic<int> guests_ = 0;  ///< threads in drive()
  std::thread thread_;
};

}  // namespace kolo
