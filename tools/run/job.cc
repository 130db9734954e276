#include "tools/run/job.h"

#include "runtime/base/check.h"
#include "runtime/topology/host.h"
#include "tools/run/binding.h"
#include "tools/run/say.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

namespace kolo::run {
namespace {

using std::chrono::milliseconds;

// Between asking a rank to end and making it end.
constexpr std::chrono::seconds kGrace(5);
// What a guard on another host, which has the same grace, takes besides.
constexpr std::chrono::seconds kWayOfGuard(2);
constexpr int kTimedOut = 124;  // as timeout(1)
constexpr std::array<int, 6> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};

/// All but those that whoever started kolo-run wants ignored, as nohup does: the kernel keeps even
/// these for a descriptor, once they are blocked.
sigset_t signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) {
    struct sigaction now = {};
    const bool is_ignored = ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
    if (!is_ignored) sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

void block_signals() {
  // Where it is ignored, nobody learns how a child has ended.
  ::signal(SIGCHLD, SIG_DFL);
  const sigset_t set = signal_set();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

Result<int> Job::run(const std::vector<Place>& places, const Environment& environment) {
  if (const std::string& folder = options_.output_directory; !folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return KOLO_ERROR(kInvalidArgument, "--output-dir {}: {}", folder, error.message());
    }
  }
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
  // ssh takes the blocking from what it inherits, also for kolo-run and the ranks on this host.
  start.captures_output =
      options_.tags_output || !options_.output_directory.empty() || command.is_remote;
  if (!options_.output_directory.empty()) {
    const std::string base = fmt::format("{}/rank.{}", options_.output_directory, place.rank);
    KOLO_ASSIGN(rank.out, Output::to_file(base + ".out"));
    KOLO_ASSIGN(rank.error, Output::to_file(base + ".err"));
  } else if (start.captures_output) {
    const std::string tag = options_.tags_output ? fmt::format("[{}] ", place.rank) : "";
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
  // What is open alone: poll() takes no more entries than there may be open files.
  std::vector<pollfd> entries = {{signals, POLLIN, 0}};
  std::vector<std::pair<UniqueDescriptor*, std::optional<Output>*>> outputs;
  for (Rank& rank : ranks_) {
    for (const auto& [from, to] :
         {std::pair(&rank.process.out, &rank.out), std::pair(&rank.process.error, &rank.error)}) {
      if (!*from) continue;
      entries.push_back({from->get(), POLLIN, 0});
      outputs.emplace_back(from, to);
    }
  }
  int wait = -1;
  for (const auto& time : {kill_at_, timeout_at_}) {
    if (!time) continue;
    const auto left = std::chrono::ceil<milliseconds>(*time - Clock::now()).count();
    const int bounded = static_cast<int>(std::clamp<long>(left, 0, 60'000));
    wait = wait < 0 ? bounded : std::min(wait, bounded);
  }
  const int ready = ::poll(entries.data(), entries.size(), wait);
  KOLO_CHECK(ready >= 0 || errno == EINTR || errno == EAGAIN || errno == ENOMEM);
  if (ready > 0) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (entries[1 + i].revents != 0) take_output(*outputs[i].first, *outputs[i].second);
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
        if (!rank.process.is_remote) send_signal(rank.process, signal);
      }
    } else if (exit_code_) {
      end_all(SIGKILL, 128 + signal);  // asked for twice
    } else {
      end_all(signal, 128 + signal);
      say(fmt::format("got signal {}; passing it on to all ranks", signal));
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
    end_all(SIGTERM, code);
    say(fmt::format("rank {} on {} (pid {}) failed first, with {}; ending the others",
                    process.place.rank, process.place.host, process.pid,
                    describe_status(process.status)));
  }
  const bool all = std::all_of(ranks_.begin(), ranks_.end(),
                               [](const Rank& rank) { return rank.process.ended; });
  if (all && !kill_at_) kill_at_ = Clock::now() + kGrace;
}

void Job::end_all(int signal, int exit_code) {
  if (!exit_code_) exit_code_ = exit_code;
  const bool has_guards = std::any_of(ranks_.begin(), ranks_.end(),
                                      [](const Rank& rank) { return rank.process.is_remote; });
  if (!kill_at_) {
    kill_at_ = Clock::now() + kGrace + (has_guards ? kWayOfGuard : std::chrono::seconds(0));
  }
  for (Rank& rank : ranks_) {
    // A guard on another host is told by the end of its input, and ends the rank in order; the
    // agent passes on what that still writes.
    rank.process.input.reset();
    if (!rank.process.is_remote || signal == SIGKILL) send_signal(rank.process, signal);
  }
}

void Job::kill_when_due() {
  if (timeout_at_ && Clock::now() >= *timeout_at_) {
    timeout_at_.reset();
    if (!exit_code_) {
      end_all(SIGTERM, kTimedOut);
      say(fmt::format("the job took longer than the --timeout of {} s; ending all ranks",
                      options_.timeout->count()));
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
