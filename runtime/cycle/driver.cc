#include "runtime/cycle/driver.h"

#include "runtime/base/own_thread.h"
#include "runtime/base/relax.h"

#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace kolo {
namespace {

// The spin lasts longer than waking a thread on another core (50 us on virtual machines). Otherwise
// two ranks that wait for each other put each other to sleep at every turn. The spin yields early,
// in case both threads share a core, and does not poll hot at all where ranks outnumber cores.
constexpr int kPolls = 200;
constexpr int kYields = 200;
// Where another program uses the core, each yield gives it a time slice, and ranks that yield in
// turn hardly ever run together. So a thread polls as long as it has just lost by a yield before it
// yields again, at most for a slice. Yields to a rank that shares the core are shorter, and change
// nothing.
constexpr std::chrono::milliseconds kLostSlice{1};
constexpr std::chrono::milliseconds kMostPatience{4};
constexpr int kPatientRelaxes = 128;  ///< between two of these polls: some microseconds
// A thread that only starts a call spins about as long as it takes to put the call into the queue.
constexpr int kStartPolls = 100;
constexpr int kStartYields = 2;
// The background thread shares its core with a user's computation.
constexpr int kBackgroundPolls = 20;
constexpr int kBackgroundYields = 2;
// Libraries miss wake-ups, so every block has a bound.
constexpr std::chrono::milliseconds kCommunicatingBound{1};
constexpr std::chrono::milliseconds kNegotiatingBound{5};
/// An accelerator wakes nobody at all.
constexpr std::chrono::microseconds kComputingBound{20};
/// Bound after a failure.
constexpr std::chrono::milliseconds kOverBound{200};
/// Pause between checks whether the threads in drive() have left, which takes them microseconds.
constexpr std::chrono::microseconds kGuestsGo{50};

bool is_at_most(std::size_t bytes, const OrderedArguments& call) {
  return call.count <= static_cast<std::int64_t>(bytes / size_of(call.type));
}

}  // namespace

/// Counts how long nothing has moved; next() returns true when it is time to block.
class Driver::Pause {
 public:
  /// `patience`: how long to poll before the first yield; what yields cost sets it. Null: not at
  /// all. `relaxes`: a poll leaves the core to its other hardware thread.
  Pause(Spin spin, Clock::duration* patience, bool relaxes = true)
      : spin_(spin), patience_(spin.polls > 0 ? patience : nullptr), relaxes_(relaxes) {}
  void reset() { idle_ = 0; }
  /// Whether the next pause only polls.
  bool polls() const { return idle_ < spin_.polls; }
  bool next() {
    ++idle_;
    if (idle_ <= spin_.polls) {
      if (relaxes_) relax();
    } else if (idle_ <= spin_.polls + spin_.yields) {
      yield();
    } else {
      idle_ = 0;
      return true;
    }
    return false;
  }

 private:
  void yield() {
    if (patience_ == nullptr) return std::this_thread::yield();
    const auto now = Clock::now();
    if (idle_ == spin_.polls + 1 && patience_->count() > 0) {
      if (patient_until_ == Clock::time_point()) patient_until_ = now + *patience_;
      if (now < patient_until_) {
        --idle_;
        for (int i = 0; i < kPatientRelaxes; ++i) relax();
        return;
      }
    }
    std::this_thread::yield();
    const Clock::duration lost = Clock::now() - now;
    *patience_ = lost < kLostSlice ? Clock::duration::zero()
                                   : std::min<Clock::duration>(lost, kMostPatience);
  }

  const Spin spin_;
  Clock::duration* const patience_;
  Clock::time_point patient_until_ = {};
  const bool relaxes_;
  int idle_ = 0;
};

/// What one thread blocks on. Filled while the thread holds the token, polled with or without it.
class Driver::Block {
 public:
  Block(Cycle& cycle, Transport& transport, const Waker& waker, const GroupRegistry& groups)
      : cycle_(cycle), transport_(transport), waker_(waker), groups_(groups) {}

  /// With the token: false if something has already arrived, so that blocking is useless.
  bool prepare(Clock::time_point until) {
    if (cycle_.is_over()) {
      // Only the end is still to come.
      descriptors_.assign({{waker_.fd(), POLLIN, 0}});
      bound_ =
          std::clamp<Clock::duration>(until - Clock::now(), Clock::duration::zero(), kOverBound);
      return true;
    }
    if (!transport_.arm()) return false;
    for (const auto& group : groups_.all()) {
      if (group->fall_asleep()) continue;
      wake_up();
      return false;
    }
    descriptors_.assign({{waker_.fd(), POLLIN, 0}, {transport_.event_fd(), POLLIN, 0}});
    if (const int fd = cycle_.watched_descriptor(); fd >= 0)
      descriptors_.push_back({fd, POLLIN, 0});
    const auto now = Clock::now();
    Clock::duration bound = cycle_.next_timer() - now;
    if (cycle_.is_computing()) {
      bound = std::min<Clock::duration>(bound, kComputingBound);
    } else if (cycle_.is_communicating()) {
      bound = std::min<Clock::duration>(bound, kCommunicatingBound);
    } else if (cycle_.has_work()) {
      bound = std::min<Clock::duration>(bound, kNegotiatingBound);
    }
    bound_ =
        std::clamp(until - now, Clock::duration::zero(), std::max(bound, Clock::duration::zero()));
    return true;
  }

  void wait() {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(bound_).count();
    const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
    // The kernel adds the thread's timer slack, 50 us by default.
    const int slack = bound_ <= kComputingBound ? ::prctl(PR_GET_TIMERSLACK) : 0;
    if (slack > 0) ::prctl(PR_SET_TIMERSLACK, 1);
    ppoll(descriptors_.data(), descriptors_.size(), &timeout, nullptr);
    if (slack > 0) ::prctl(PR_SET_TIMERSLACK, slack);
  }

  /// With the token again. The waker must not be cleared before: another blocked driver needs the
  /// same wake-up.
  void acknowledge() {
    if (descriptors_.empty()) return;
    wake_up();
    if (descriptors_[0].revents != 0) {
      waker_.clear();
      has_cleared_ = true;
    }
    has_heard_ |= descriptors_.size() > 1 && descriptors_[1].revents != 0;
    if (descriptors_.size() > 2 && descriptors_[2].revents != 0) cycle_.check_processes();
    descriptors_.clear();
  }

  /// The waker was rung meanwhile, perhaps for another blocked driver.
  bool has_cleared() const { return has_cleared_; }
  /// The transport had events, and the other blocked driver may have missed them.
  bool has_heard() const { return has_heard_; }

 private:
  void wake_up() {
    for (const auto& group : groups_.all()) group->wake_up();
  }

  Cycle& cycle_;
  Transport& transport_;
  const Waker& waker_;
  const GroupRegistry& groups_;
  std::vector<pollfd> descriptors_;
  Clock::duration bound_ = {};
  bool has_cleared_ = false;
  bool has_heard_ = false;
};

/// A thread in drive(). Either stop() waits for it, or it sees that it must not go on.
class Driver::Guest {
 public:
  explicit Guest(std::atomic<int>& guests) : guests_(guests) {
    guests_.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Guest() { guests_.fetch_sub(1, std::memory_order_release); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

 private:
  std::atomic<int>& guests_;
};

Driver::Driver(Cycle& cycle, GroupRegistry& groups, Transport& transport, Waker& waker,
               Timeline& timeline, bool may_spin)
    : cycle_(cycle),
      groups_(groups),
      transport_(transport),
      waker_(waker),
      timeline_(timeline),
      may_spin_(may_spin) {}

void Driver::start() {
  thread_ = own_thread([this] { run(); });
}

void Driver::run() {
  Pause pause({may_spin_ ? kBackgroundPolls : 0, kBackgroundYields}, nullptr);
  Block block(cycle_, transport_, waker_, groups_);
  while (!stopping_.load(std::memory_order_acquire)) {
    {
      const auto hold = token_.acquire_background();
      if (!hold) return;
      block.acknowledge();
      bool idle = false;
      do {  // at least once, even if a thread that has long held the token wants it
        if (cycle_.step()) {
          pause.reset();
        } else {
          idle = !cycle_.has_work() || pause.next();
        }
      } while (!idle && !token_.wanted() && !stopping_.load(std::memory_order_acquire));
      // The thread that wants the token takes over; this thread comes back afterwards.
      if (!idle || !block.prepare(Clock::time_point::max())) continue;
    }
    block.wait();
  }
}

bool Driver::drive(Work& work, Clock::time_point until) {
  const Guest guest(guests_);
  if (stopping_.load(std::memory_order_seq_cst)) return false;
  const TraceTime begun = timeline_.on() ? trace_now() : 0;
  auto hold = token_.acquire_for_waiter(until);
  const bool drives = hold.has_value();
  groups_.request_flush(/*wake=*/!drives);
  if (!drives) return false;
  Block block(cycle_, transport_, waker_, groups_);
  step_until_done(work, until, block);
  if (timeline_.has(begun)) timeline_.record(WaitRecord{begun, trace_now()});
  const bool is_over = work.done() && !cycle_.has_work();
  if (is_over) hold->release_quietly();
  // A message that waits for its other side needs no driver, but a thread that listens.
  const bool took_a_ring = block.has_cleared() || (is_over && block.has_heard());
  if (took_a_ring && (!is_over || cycle_.has_messages())) waker_.wake();
  return true;
}

void Driver::step_until_done(const Work& work, Clock::time_point until, Block& block) {
  Pause pause({may_spin_ ? kPolls : 0, kYields}, &patience_);
  while (!work.done() && !stopping_.load(std::memory_order_acquire) &&
         asked_.load(std::memory_order_acquire) == 0) {
    if (cycle_.step()) {
      pause.reset();
      if (until != Clock::time_point::max() && Clock::now() >= until) return;
    } else if (pause.next()) {
      if (Clock::now() >= until) return;
      if (!block.prepare(until)) continue;
      block.wait();
      block.acknowledge();
    }
  }
}

bool Driver::call(const OrderedArguments& call) {
  if (!is_at_most(thresholds::kExchangeInArena, call)) return false;
  auto hold = token_.acquire_for_waiter(Clock::time_point::max());
  return hold && call_holding(*std::move(hold), call, {may_spin_ ? kPolls : 0, kYields});
}

bool Driver::start_call(const OrderedArguments& call) {
  if (!is_at_most(thresholds::kExchange, call)) return false;
  auto hold = token_.try_acquire();
  return hold && call_holding(*std::move(hold), call,
                              may_spin_ ? Spin{kStartPolls, 0} : Spin{0, kStartYields});
}

// If this returns false and nothing is under way, the caller comes back at once to drive what it
// submits, or wakes the background thread, so the token is released without waking that thread.
bool Driver::call_holding(ProgressToken::Hold hold, const OrderedArguments& call, Spin spin) {
  Group* const group = call.process_set == 0 ? &groups_.world() : groups_.find(call.process_set);
  if (group != nullptr && group->is_member()) {
    const auto request = request_of(call, group->communicator(), group->exchange().limits());
    if (request) return run_holding(std::move(hold), *group, *request, spin);
  }
  if (!cycle_.has_work()) hold.release_quietly();
  return false;
}

bool Driver::run_holding(ProgressToken::Hold hold, Group& group, Exchange::Request request,
                         Spin spin) {
  if (!cycle_.begin_exchange(group, request)) {
    if (!cycle_.has_work()) hold.release_quietly();
    return false;
  }
  Exchange& exchange = group.exchange();
  const bool done = spin_on(exchange, spin) && exchange.status().ok() && !exchange.declined();
  if (done) {
    cycle_.end_exchange(group, request);
  } else if (exchange.busy()) {
    exchange.abandon();
  }
  if (!cycle_.has_work()) hold.release_quietly();
  return done;
}

bool Driver::spin_on(Exchange& exchange, Spin spin) {
  const bool is_two_rank = exchange.is_two_rank();
  Pause pause(spin, &patience_, /*relaxes=*/!is_two_rank);
  while (!exchange.advance()) {
    const bool is_early = pause.polls();
    if (pause.next()) return false;
    if ((is_two_rank || !is_early) && cycle_.has_work()) {
      cycle_.step();
    } else if (is_two_rank) {
      transport_.progress();
    }
  }
  return true;
}

std::optional<ProgressToken::Hold> Driver::stop_threads(Clock::time_point until) {
  stopping_.store(true, std::memory_order_seq_cst);
  waker_.wake();
  auto hold = token_.acquire(until);
  if (!hold) return std::nullopt;
  // The threads in drive() do not get the token, and leave.
  while (guests_.load(std::memory_order_seq_cst) != 0) {
    if (Clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(kGuestsGo);
  }
  token_.close();
  if (thread_.joinable()) thread_.join();
  return hold;
}

}  // namespace kolo
