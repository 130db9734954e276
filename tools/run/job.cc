#include "tools/run/job.h"

#include "runtime/base/check.h"
#include "runtime/topology/host.h"
#include "tools/run/binding.h"
#include "tools/run/say.h"
#include "tools/run/signals.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace kolo::run {
namespace {

using std::chrono::milliseconds;

// Logins to one host at a time; sshd refuses some if more than 10 are under way (MaxStartups).
constexpr int kMostLogins = 8;
// Interval of checks whether anything is left that a rank has started.
constexpr milliseconds kLookForRest(100);
// Interval of what an elastic job asks for without an event.
constexpr milliseconds kAskForOrders(100);

}  // namespace

Result<int> Job::run(const std::vector<Place>& places, const Environment& environment) {
  // Processes that ranks leave running become children of this process when their parent ends, and
  // are waited for here.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (options_.timeout) timeout_at_ = Clock::now() + *options_.timeout;
  waiting_.assign(places.rbegin(), places.rend());
  if (options_.elastic != nullptr) options_.elastic->begin(places);
  supervise(environment);
  for (const Rank& rank : ranks_) {
    const Process& process = rank.process;
    if (process.ended) continue;
    say(fmt::format(
        "rank {} on {} (pid {}) does not end by SIGKILL; leaving it: see what the kernel "
        "waits for there (ps -o stat,wchan {})",
        process.place.rank, process.place.host, process.pid, process.pid));
  }
  if (has_strays_ || !have_ended()) {
    for (const pid_t pid : strays()) ::kill(pid, SIGKILL);
  }
  if (!started_.ok()) return started_.error();
  return exit_code_.value_or(has_lost_output_ ? 1 : 0);
}

std::vector<Place> Job::places() const {
  std::vector<Place> places;
  for (const Rank& rank : ranks_) places.push_back(rank.process.place);
  return places;
}

void Job::start_waiting(const Environment& environment) {
  std::vector<Place> held;
  while (!waiting_.empty()) {
    const Place place = std::move(waiting_.back());
    waiting_.pop_back();
    if (!place.is_here && !may_log_in(place.host)) {
      held.push_back(place);
      continue;
    }
    started_ = start(place, environment);
    if (started_.ok()) continue;
    if (!exit_code_) take_first_failure(place.rank, kCannotStart);
    held.clear();
    end_all(SIGKILL, 1, kGrace);
  }
  waiting_.assign(held.rbegin(), held.rend());
}

bool Job::may_log_in(const std::string& host) const {
  const auto logins = std::count_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return rank.is_logging_in && rank.process.place.host == host;
  });
  return logins < kMostLogins;
}

Status Job::start(const Place& place, const Environment& environment) {
  const Command command = command_for(description_, place, environment);
  Rank rank;
  rank.process.place = place;
  KOLO_TRY(make_outputs(rank, command.is_remote));
  StartOptions start;
  // ssh sets its inherited descriptors to non-blocking, also for kolo-run and the ranks on this
  // host.
  start.captures_output = rank.out.has_value();
  if (!command.is_remote) {
    KOLO_ASSIGN(start.processors, cores_of_rank(description_.bind, place.local_rank,
                                                place.local_size, usable_cores()));
  }
  KOLO_ASSIGN(rank.process, start_process(place, command, start));
  rank.is_logging_in = command.is_remote;
  has_agents_ = has_agents_ || command.is_remote;
  ranks_.push_back(std::move(rank));
  return {};
}

void Job::supervise(const Environment& environment) {
  const sigset_t set = signal_set();
  const UniqueDescriptor signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  KOLO_CHECK(bool(signals));
  while (true) {
    reap();  // also those whose signals came before there was a descriptor for them
    keep_deadlines();
    follow_orders();
    start_waiting(environment);
    if (is_done()) return;
    wait_for_events(signals.get());
  }
}

bool Job::have_ended() const {
  if (!exit_code_ && options_.elastic != nullptr && options_.elastic->waits()) return false;
  return waiting_.empty() && std::all_of(ranks_.begin(), ranks_.end(),
                                         [](const Rank& rank) { return rank.process.ended; });
}

bool Job::are_gone() const {
  return have_ended() && std::all_of(ranks_.begin(), ranks_.end(),
                                     [](const Rank& rank) { return rank.process.is_gone; });
}

bool Job::is_done() const {
  if (!have_ended()) return give_up_at_ && Clock::now() >= *give_up_at_;
  if (name_at_) return false;
  if (leave_at_ && Clock::now() >= *leave_at_) return true;
  const bool silent = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return !rank.process.out && !rank.process.error;
  });
  return are_gone() && !has_strays_ && silent &&
         std::all_of(sinks_.begin(), sinks_.end(),
                     [](const auto& sink) { return sink->is_empty(); });
}

int Job::milliseconds_to_wait() const {
  Time first;
  const auto add = [&](const Time& time) {
    if (time && (!first || *time < *first)) first = time;
  };
  const Time& end_at = have_ended() ? leave_at_ : give_up_at_;
  for (const Time& time : {name_at_, kill_at_, timeout_at_, close_at_, end_at}) add(time);
  if (has_strays_) add(strays_due_at_);
  if (options_.elastic != nullptr && !exit_code_) add(Clock::now() + kAskForOrders);
  for (const Rank& rank : ranks_) {
    if (rank.process.is_gone) continue;
    if (!rank.process.ended) add(rank.kill_at);
    add(rank.linger_until);
    add(rank.kill_rest_at);
    // No event tells when the last process of a group ends or leaves the group.
    if (rank.process.ended) add(Clock::now() + kLookForRest);
  }
  if (!first) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*first - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 60'000));
}

void Job::wait_for_events(int signals) {
  struct Source {
    Rank* rank;
    UniqueDescriptor* from;
    Output* to;
  };
  // Only open descriptors: poll() takes no more entries than the limit of open files.
  std::vector<pollfd> entries = {{signals, POLLIN, 0}};
  std::vector<Source> sources;
  for (Rank& rank : ranks_) {
    for (const auto& [from, to] :
         {std::pair(&rank.process.out, &rank.out), std::pair(&rank.process.error, &rank.error)}) {
      if (!*from || (*to)->sink().is_full()) continue;
      entries.push_back({from->get(), POLLIN, 0});
      sources.push_back({&rank, from, &**to});
    }
  }
  for (const auto& sink : sinks_) {
    if (!sink->is_empty()) entries.push_back({sink->descriptor(), POLLOUT, 0});
  }
  for (const Rank& rank : ranks_) {
    const Process& process = rank.process;
    if (process.input && !process.unsent.empty())
      entries.push_back({process.input.get(), POLLOUT, 0});
  }
  const int ready = ::poll(entries.data(), entries.size(), milliseconds_to_wait());
  KOLO_CHECK(ready >= 0 || errno == EINTR || errno == EAGAIN || errno == ENOMEM);
  if (ready <= 0) return;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& [rank, from, to] = sources[i];
    if (entries[1 + i].revents != 0) take_output(*rank, *from, *to);
  }
  flush_outputs();
  for (Rank& rank : ranks_) feed(rank.process);
  if (entries[0].revents != 0) take_signals(signals);
}

}  // namespace kolo::run
