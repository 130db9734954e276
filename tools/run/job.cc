#include "tools/run/job.h"

#include "runtime/base/check.h"
#include "runtime/topology/host.h"
#include "tools/run/binding.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

namespace kolo::run {
namespace {

using std::chrono::milliseconds;

// Between asking a rank to end and making it end.
constexpr std::chrono::seconds kGrace(5);
constexpr int kTimedOut = 124;  // as timeout(1)
constexpr std::array<int, 6> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

sigset_t signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

void say(const std::string& line) { fmt::print(stderr, "kolo-run: {}\n", line); }

}  // namespace

void block_signals() {
  const sigset_t set = signal_set();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

Result<int> Job::run(const std::vector<Place>& places, const Environment& environment) {
  for (const Place& place : places) {
    const Status started = start(place, environment);
    if (started.ok()) continue;
    end_all(SIGKILL, 1);
    supervise();
    return started.error();
  }
  if (options_.timeout) timeout_at_ = Clock::now() + *options_.timeout;
  supervise();
  return exit_code_.value_or(0);
}

Status Job::start(const Place& place, const Environment& environment) {
  const Command command = command_for(description_, place, environment);
  Rank rank;
  StartOptions start;
  start.captures_output = options_.tags_output || !options_.output_directory.empty();
  if (!options_.output_directory.empty()) {
    const std::string base = fmt::format("{}/rank.{}", options_.output_directory, place.rank);
    KOLO_ASSIGN(rank.out, Output::to_file(base + ".out"));
    KOLO_ASSIGN(rank.error, Output::to_file(base + ".err"));
  } else if (options_.tags_output) {
    const std::string tag = fmt::format("[{}] ", place.rank);
    rank.out.emplace(STDOUT_FILENO, tag);
    rank.error.emplace(STDERR_FILENO, tag);
  }
  if (!command.is_remote) {
    KOLO_ASSIGN(start.processors, cores_of_rank(description_.bind, place.local_rank,
                                                place.local_size, usable_cores()));
  }
  KOLO_ASSIGN(rank.process, start_process(place, command, start));
  ranks_.push_back(std::move(rank));
  return {};
}

void Job::supervise() {
  const sigset_t set = signal_set();
  const UniqueDescriptor signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  KOLO_CHECK(bool(signals));
  reap();  // whose signals came before there was a descriptor for them
  while (!is_done()) wait_for_events(signals.get());
  for (Rank& rank : ranks_) {
    if (rank.out) rank.out->finish();
    if (rank.error) rank.error->finish();
  }
}

bool Job::is_done() const {
  const bool ended = std::all_of(ranks_.begin(), ranks_.end(),
                                 [](const Rank& rank) { return rank.process.ended; });
  const bool silent = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return !rank.process.out && !rank.process.error;
  });
  // What a rank left running in the background may hold its output open for ever.
  return ended && (silent || (kill_at_ && Clock::now() >= *kill_at_));
}

void Job::wait_for_events(int signals) {
  std::vector<pollfd> entries = {{signals, POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    entries.push_back({rank.process.out.get(), POLLIN, 0});
    entries.push_back({rank.process.error.get(), POLLIN, 0});
  }
  int wait = -1;
  for (const auto& time : {kill_at_, timeout_at_}) {
    if (!time) continue;
    const auto left = std::chrono::ceil<milliseconds>(*time - Clock::now()).count();
    const int bounded = static_cast<int>(std::clamp<long>(left, 0, 60'000));
    wait = wait < 0 ? bounded : std::min(wait, bounded);
  }
  if (::poll(entries.data(), entries.size(), wait) > 0) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (entries[1 + 2 * i].revents != 0) take_output(rank.process.out, rank.out);
      if (entries[2 + 2 * i].revents != 0) take_output(rank.process.error, rank.error);
    }
    if (entries[0].revents != 0) take_signals(signals);
  }
  kill_when_due();
}

void Job::take_output(UniqueDescriptor& from, std::optional<Output>& to) {
  std::array<char, 65536> bytes;
  const auto got = ::read(from.get(), bytes.data(), bytes.size());
  if (got > 0) {
    to->write({bytes.data(), static_cast<std::size_t>(got)});
  } else if (got == 0 || errno != EINTR) {
    from.reset();
  }
}

void Job::take_signals(int signals) {
  signalfd_siginfo info = {};
  while (::read(signals, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      reap();
    } else if (signal == SIGUSR1 || signal == SIGUSR2) {
      for (const Rank& rank : ranks_) {
        // An agent would die of it.
        if (!rank.process.input) send_signal(rank.process, signal);
      }
    } else if (exit_code_) {
      end_all(SIGKILL, 128 + signal);  // asked for twice
    } else {
      say(fmt::format("got signal {}; passing it on to all ranks", signal));
      end_all(signal, 128 + signal);
    }
  }
}

void Job::reap() {
  for (Rank& rank : ranks_) {
    Process& process = rank.process;
    if (process.ended || ::waitpid(process.pid, &process.status, WNOHANG) != process.pid) continue;
    process.ended = true;
    // What it started and left behind goes with it.
    ::kill(-process.pid, SIGKILL);
    const int code = exit_code_of(process.status);
    if (code == 0 || exit_code_) continue;
    say(fmt::format("rank {} on {} (pid {}) failed first, with {}; ending the others",
                    process.place.rank, process.place.host, process.pid,
                    describe_status(process.status)));
    end_all(SIGTERM, code);
  }
  const bool all = std::all_of(ranks_.begin(), ranks_.end(),
                               [](const Rank& rank) { return rank.process.ended; });
  if (all && !kill_at_) kill_at_ = Clock::now() + kGrace;
}

void Job::end_all(int signal, int exit_code) {
  if (!exit_code_) exit_code_ = exit_code;
  if (!kill_at_) kill_at_ = Clock::now() + kGrace;
  for (Rank& rank : ranks_) {
    rank.process.input.reset();  // what tells a guard on another host
    send_signal(rank.process, signal);
  }
}

void Job::kill_when_due() {
  if (timeout_at_ && Clock::now() >= *timeout_at_) {
    timeout_at_.reset();
    if (!exit_code_) {
      say(fmt::format("the job took longer than the --timeout of {} s; ending all ranks",
                      options_.timeout->count()));
      end_all(SIGTERM, kTimedOut);
    }
  }
  const bool is_alive = std::any_of(ranks_.begin(), ranks_.end(),
                                    [](const Rank& rank) { return !rank.process.ended; });
  if (is_alive && kill_at_ && Clock::now() >= *kill_at_) {
    for (const Rank& rank : ranks_) send_signal(rank.process, SIGKILL);
    kill_at_ = Clock::now() + kGrace;
  }
}

}  // namespace kolo::run
