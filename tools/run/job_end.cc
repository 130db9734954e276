// The part of Job that handles ends: signals, ranks that have ended, and deadlines.
#include "runtime/base/check.h"
#include "tools/run/job.h"
#include "tools/run/say.h"
#include "tools/run/signals.h"
#include "tools/run/strays.h"

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>

namespace kolo::run {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// After a signal from outside, a checkpoint may have to be written.
constexpr seconds kGraceAfterSignal(30);
// Extra time for a guard on another host, which has the same grace period.
constexpr seconds kWayOfGuard(2);
// The failure of a rank on another host arrives later than the failures of ranks whose connections
// it has broken.
constexpr milliseconds kNewsFromHosts(300);
// Time for a reader to take the rest of the output after the job was stopped.
constexpr seconds kOutputDrainTime(2);
// The exit status of ssh itself.
constexpr int kFailureOfSsh = 255;

/// The name of a signal that a guard passes on.
std::string_view name_of_passed(int signal) {
  if (signal == SIGSTOP) return "STOP";
  if (signal == SIGCONT) return "CONT";
  return signal == SIGUSR1 ? "USR1" : "USR2";
}

/// Whether a signal that is not SIGABRT killed the rank. A rank that a lost connection ends usually
/// has an exit status, or aborts.
bool was_killed(int status) {
  constexpr int kMostSignal = 64;
  const int signal = exit_code_of(status) - 128;
  return signal > 0 && signal <= kMostSignal && signal != SIGABRT;
}

}  // namespace

void Job::take_signals(int signals) {
  signalfd_siginfo info = {};
  while (::read(signals, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGCONT) {
      pass_on(signal);
    } else if (signal == SIGTSTP) {
      suspend(info.ssi_code == SI_KERNEL);
    } else if (signal != SIGCHLD) {
      take_stop(signal);
    }
  }
}

void Job::pass_on(int signal) {
  for (Rank& rank : ranks_) {
    if (rank.process.ended) continue;
    if (!rank.process.is_remote) {
      send_signal(rank.process, signal);
      continue;
    }
    // A signal would end an agent; the guard that the agent has started passes it on.
    rank.process.unsent += signal_line(name_of_passed(signal));
    feed(rank.process);
  }
}

void Job::suspend(bool by_terminal) {
  // The ranks' sessions have no terminal, so SIGTSTP would be lost for ranks on other hosts.
  pass_on(SIGSTOP);
  const auto since = Clock::now();
  stop_this_process(by_terminal);
  pass_on(SIGCONT);
  const auto pause = Clock::now() - since;
  const auto put_off = [pause](Time& time) {
    if (time) *time += pause;
  };
  for (Time* time : {&first_signal_at_, &name_at_, &kill_at_, &timeout_at_, &close_at_,
                     &strays_due_at_, &give_up_at_, &leave_at_}) {
    put_off(*time);
  }
  for (Rank& rank : ranks_) {
    put_off(rank.linger_until);
    put_off(rank.kill_at);
    put_off(rank.kill_rest_at);
  }
}

void Job::take_stop(int signal) {
  const auto now = Clock::now();
  if (!first_signal_at_ && !exit_code_) {
    first_signal_at_ = now;
    is_stopped_ = true;
    end_all(signal, 128 + signal, options_.grace.value_or(kGraceAfterSignal));
    tell(fmt::format("{} signal {}; passing it on to all ranks",
                     signal == SIGINT ? "interrupted by" : "got", signal));
  } else if (!first_signal_at_ || now - *first_signal_at_ >= kSameSignal) {
    is_stopped_ = true;
    end_all(SIGKILL, 128 + signal, kGrace);  // asked for twice
    // A user who asks again does not wait longer than this.
    give_up_at_ = std::min(give_up_at_.value_or(now + kGrace), now + kGrace);
    leave_at_ = std::min(leave_at_.value_or(now + kOutputDrainTime), now + kOutputDrainTime);
  }
}

void Job::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& candidate) {
      return !candidate.process.ended && candidate.process.pid == pid;
    });
    if (rank != ranks_.end()) {
      take_end(*rank, status);
    } else if (options_.elastic != nullptr) {
      options_.elastic->take_child(pid, status);
    }
  }
  for (Rank& rank : ranks_) {
    Process& process = rank.process;
    if (!process.ended || process.is_gone || ::kill(-process.pid, 0) == 0) continue;
    process.is_gone = true;
    // All others that are gone have failed.
    if (options_.on_gone) options_.on_gone(process.place.rank);
  }
}

void Job::take_end(Rank& rank, int status) {
  Process& process = rank.process;
  process.ended = true;
  process.status = status;
  process.input.reset();
  rank.kill_at.reset();
  take_banner(rank);
  rank.is_logging_in = rank.is_logging_in && process.out;  // its output is still to come
  const bool is_done = exit_code_of(status) == 0;
  bool goes_on = false;
  if (options_.elastic != nullptr && !exit_code_) {
    std::string line;
    goes_on = options_.elastic->note_end(process, end_of(rank), line);
    if (!line.empty()) tell(line);
  }
  if (is_done) {
    rank.linger_until = Clock::now() + kGrace;
    return;
  }
  // Also end the processes that it left behind.
  ::kill(-process.pid, SIGKILL);
  process.is_gone = true;
  if (exit_code_ || rank.is_dismissed || goes_on) return;
  failed_.push_back(&rank);
  if (!name_at_) name_at_ = Clock::now() + (has_agents_ ? kNewsFromHosts : milliseconds(0));
}

Roster::End Job::end_of(const Rank& rank) const {
  const Process& process = rank.process;
  if (rank.is_dismissed) return Roster::End::kAsked;
  const int code = exit_code_of(process.status);
  if (code == 0) return Roster::End::kDone;
  if (process.is_remote && !rank.has_logged_in) return Roster::End::kNoLogin;
  const bool is_cut = process.is_remote && code == kFailureOfSsh && is_ssh(description_.agent);
  return is_cut ? Roster::End::kCut : Roster::End::kFailed;
}

Job::Rank* Job::find(int process) {
  const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [process](const Rank& other) {
    return other.process.place.process == process && !other.process.ended;
  });
  return rank == ranks_.end() ? nullptr : &*rank;
}

void Job::follow_orders() {
  if (options_.elastic == nullptr || exit_code_ || name_at_) return;
  const Elastic::Orders orders = options_.elastic->orders();
  for (const std::string& line : orders.lines) tell(line);
  if (options_.elastic->is_over()) waiting_.clear();
  for (const Place& place : orders.start) waiting_.insert(waiting_.begin(), place);
  for (const int process : orders.end) {
    std::erase_if(waiting_, [process](const Place& place) { return place.process == process; });
    Rank* const rank = find(process);
    if (rank == nullptr) continue;
    const seconds grace = options_.grace.value_or(kGraceAfterSignal);
    rank->is_dismissed = true;
    rank->kill_at = Clock::now() + grace + (rank->process.is_remote ? kWayOfGuard : seconds(0));
    ask_to_end(*rank, SIGTERM, grace);
  }
  for (const int process : orders.dismiss) {
    Rank* const rank = find(process);
    if (rank == nullptr || rank->is_dismissed) continue;
    rank->is_dismissed = true;
    send_signal(rank->process, SIGKILL);  // it has nothing yet that could be lost
  }
  for (const int process : orders.kill)
    if (Rank* const rank = find(process)) send_signal(rank->process, SIGKILL);
  if (!orders.gives_up) return;
  end_all(SIGTERM, orders.exit_code, options_.grace.value_or(kGrace));
  tell(*orders.gives_up + "; ending the job");
}

void Job::name_first_failure() {
  name_at_.reset();
  if (exit_code_) return;
  const auto killed = std::find_if(failed_.begin(), failed_.end(), [](const Rank* rank) {
    return was_killed(rank->process.status);
  });
  const Process& process = (killed == failed_.end() ? failed_.front() : *killed)->process;
  const int code = exit_code_of(process.status);
  take_first_failure(process.place.rank, code);
  end_all(SIGTERM, code, options_.grace.value_or(kGrace));
  const std::string& host = process.place.host;
  const std::string pid = process.is_remote ? "" : fmt::format(" (pid {})", process.pid);
  std::string end = describe_status(process.status);
  first_end_ = end;
  if (process.is_remote && code == kFailureOfSsh && is_ssh(description_.agent)) {
    end += fmt::format(", which is ssh's own: see whether `ssh {} true` works without a password",
                       host);
  }
  tell(fmt::format("rank {} on {}{} was the first to end with an error, {}; ending the others",
                   process.place.rank, host, pid, end));
}

void Job::take_first_failure(int rank, int exit_code) {
  first_failed_ = rank;
  if (options_.on_first_failure) options_.on_first_failure(rank, exit_code);
}

void Job::ask_to_end(Rank& rank, int signal, seconds grace) {
  // The end of its input tells a guard on another host to end its rank in order; the agent passes
  // on what the rank still writes.
  Process& process = rank.process;
  if (process.input && process.is_remote) {
    process.unsent += grace_line(grace);
    feed(process);
    process.input.reset();
  }
  if (!process.is_remote || signal == SIGKILL) send_signal(process, signal);
  if (!process.is_remote) send_signal(process, SIGCONT);  // a stopped rank must see the signal, too
}

void Job::end_all(int signal, int exit_code, seconds grace) {
  if (!exit_code_) {
    exit_code_ = exit_code;
    if (options_.on_end) options_.on_end();
    if (options_.elastic != nullptr) options_.elastic->end(exit_code);
  }
  waiting_.clear();
  if (!kill_at_) kill_at_ = Clock::now() + grace + (has_agents_ ? kWayOfGuard : seconds(0));
  for (Rank& rank : ranks_) ask_to_end(rank, signal, grace);
}

void Job::keep_deadlines() {
  const auto now = Clock::now();
  const auto is_due = [&](const Time& time) { return time && now >= *time; };
  if (name_at_ && (is_due(name_at_) || have_ended())) name_first_failure();
  if (is_due(timeout_at_)) {
    timeout_at_.reset();
    is_stopped_ = true;
    if (!exit_code_) {
      end_all(SIGTERM, kTimedOut, options_.grace.value_or(kGrace));
      tell(fmt::format("the job took longer than the --timeout of {} s; ending all ranks",
                       options_.timeout->count()));
    }
  }
  for (Rank& rank : ranks_) {
    if (is_due(rank.kill_at)) {
      rank.kill_at.reset();
      send_signal(rank.process, SIGKILL);
    }
    look_after_rest(rank);
  }
  if (is_due(kill_at_)) {
    kill_at_.reset();
    for (Rank& rank : ranks_) {
      send_signal(rank.process, SIGKILL);
      rank.process.is_gone = rank.process.is_gone || rank.process.ended;
    }
    if (!give_up_at_) give_up_at_ = now + options_.time_to_die;
  }
  if (!are_gone()) return;
  if (!has_ended_strays_) look_after_strays();
  if (has_strays_) return;
  if (!close_at_) close_at_ = now + kGrace;
  if (is_stopped_ && !leave_at_) leave_at_ = now + kOutputDrainTime;
  if (is_due(close_at_)) close_what_is_left_open();
}

void Job::look_after_rest(Rank& rank) {
  Process& process = rank.process;
  if (!process.ended || process.is_gone) return;
  const auto now = Clock::now();
  const bool is_silent = rank.out && !process.out && !process.error;
  if (rank.linger_until && (is_silent || now >= *rank.linger_until)) {
    rank.linger_until.reset();
    rank.kill_rest_at = now + kGrace;
    send_signal(process, SIGTERM);
  } else if (rank.kill_rest_at && now >= *rank.kill_rest_at) {
    send_signal(process, SIGKILL);
    process.is_gone = true;
  }
}

std::vector<pid_t> Job::strays() const {
  return strays_with("KOLO_INIT_METHOD=" + init_method_of(description_));
}

void Job::look_after_strays() {
  const auto found = strays();
  has_strays_ = !found.empty();
  has_ended_strays_ = found.empty();
  if (!has_strays_) return;
  const auto now = Clock::now();
  if (!strays_due_at_) strays_due_at_ = now + (exit_code_ ? seconds(0) : kGrace);
  const bool are_silent = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.out && !rank.process.out && !rank.process.error;
  });
  const bool is_asked = stray_signals_ > 0;
  if (now < *strays_due_at_ && (is_asked || !are_silent)) return;
  constexpr std::array<int, 2> kEnds = {SIGTERM, SIGKILL};
  if (stray_signals_ == kEnds.size()) {
    has_strays_ = false;  // the kernel keeps them, e.g. in uninterruptible sleep
    has_ended_strays_ = true;
    return;
  }
  const int signal = kEnds[stray_signals_++];
  for (const pid_t pid : found) {
    ::kill(pid, signal);
    ::kill(pid, SIGCONT);
  }
  strays_due_at_ = now + kGrace;
}

}  // namespace kolo::run
