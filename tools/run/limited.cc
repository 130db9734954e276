#include "tools/run/limited.h"

#include "runtime/base/check.h"
#include "tools/run/binding.h"
#include "tools/run/job.h"
#include "tools/run/process.h"
#include "tools/run/say.h"
#include "tools/run/signals.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <optional>
#include <system_error>

namespace kolo::run {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

// Time for a launcher that was asked twice and therefore ends its ranks in haste.
constexpr seconds kHaste(10);
// Time for a launcher to end by itself once it is over.
constexpr seconds kLeave(10);
// Interval between looks whether it is.
constexpr seconds kLook(1);

/// The signals that kolo-run always handles, and SIGQUIT, which would end it without telling the
/// launcher.
sigset_t signals_to_take() {
  sigset_t set = signal_set();
  struct sigaction now = {};
  const bool is_ignored = ::sigaction(SIGQUIT, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  if (!is_ignored) sigaddset(&set, SIGQUIT);
  return set;
}

class Limited {
 public:
  Limited(pid_t launcher, const sigset_t& signals, seconds limit,
          const std::function<bool()>& is_over)
      : launcher_(launcher), signals_(signals), limit_(limit), is_over_(is_over) {
    if (limit.count() > 0) end_at_ = Clock::now() + limit;
  }

  int wait_for_end() {
    int status = 0;
    while (::waitpid(launcher_, &status, WNOHANG) != launcher_) {
      keep_deadlines();
      siginfo_t info = {};
      const timespec left = time_left();
      const int signal = ::sigtimedwait(&signals_, &info, &left);
      if (signal > 0) take(signal, info.si_code == SI_KERNEL);
    }
    return is_late_ ? kTimedOut : exit_code_of(status);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Time = std::optional<Clock::time_point>;

  void send(int signal) const { ::kill(launcher_, signal); }

  /// `by_terminal`: the kernel has sent the signal to the whole process group, the launcher
  /// included; but it sends a hangup only to the session's leader.
  void take(int signal, bool by_terminal) {
    if (signal == SIGCHLD) return;
    if (!by_terminal || signal == SIGHUP) send(signal);
    if (signal == SIGTSTP) suspend(by_terminal);
    if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT) {
      send(SIGCONT);  // a stopped launcher must see the signal, too
      ask();
    }
  }

  void ask() {
    const auto now = Clock::now();
    if (!asked_at_) {
      asked_at_ = now;
    } else if (!kill_at_ && now - *asked_at_ >= kSameSignal) {
      kill_at_ = now + kHaste;
    }
  }

  void ask_to_end() {
    send(SIGTERM);
    send(SIGCONT);
    ask();
  }

  void suspend(bool by_terminal) {
    const auto since = Clock::now();
    stop_this_process(by_terminal);
    const auto pause = Clock::now() - since;
    for (Time* time : {&end_at_, &leave_at_, &asked_at_, &kill_at_}) {
      if (*time) **time += pause;
    }
  }

  void keep_deadlines() {
    const auto now = Clock::now();
    if (!leave_at_ && is_over_()) leave_at_ = now + kLeave;
    if (asked_at_) end_at_.reset(), leave_at_.reset();  // it is ending already
    if (leave_at_ && now >= *leave_at_) {
      say("all ranks have ended, and their launcher has not; ending it");
      ask_to_end();
    }
    if (end_at_ && now >= *end_at_) {
      end_at_.reset();
      is_late_ = true;
      say(fmt::format("the job took longer than the --timeout of {} s; ending it", limit_.count()));
      ask_to_end();
    }
    if (kill_at_ && now >= *kill_at_) {
      kill_at_.reset();
      send(SIGKILL);
    }
  }

  timespec time_left() const {
    auto left = std::chrono::duration_cast<nanoseconds>(kLook);
    for (const Time& time : {end_at_, kill_at_}) {
      if (time) left = std::min<nanoseconds>(left, *time - Clock::now());
    }
    left = std::max(left, nanoseconds(0));
    const auto whole = std::chrono::duration_cast<seconds>(left);
    return {static_cast<time_t>(whole.count()), static_cast<long>((left - whole).count())};
  }

  const pid_t launcher_;
  const sigset_t signals_;
  const seconds limit_;
  const std::function<bool()>& is_over_;
  bool is_late_ = false;  ///< the limit was reached
  Time end_at_ = {};      ///< when the limit is reached
  Time leave_at_ = {};    ///< when it should have ended by itself
  Time asked_at_ = {};    ///< first time that somebody asked it to end
  Time kill_at_ = {};     ///< though it was asked twice
};

}  // namespace

Result<int> run_limited(const std::vector<std::string>& command,
                        const Environment::Variables& variables, seconds limit,
                        const std::function<bool()>& is_over) {
  ::signal(SIGCHLD, SIG_DFL);  // if ignored, waitpid cannot return how the launcher ended
  const sigset_t signals = signals_to_take();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t own = ::getpid();
  const pid_t launcher = ::fork();
  if (launcher < 0) {
    return KOLO_ERROR(kOutOfMemory, "cannot start '{}': {}; see ulimit -u", command[0],
                      std::generic_category().message(errno));
  }
  if (launcher == 0) {
    // If kolo-run is killed, the launcher still ends its ranks.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    if (::getppid() == own) say(become(command, variables).message);
    ::_exit(kCannotStart);
  }
  return Limited(launcher, signals, limit, is_over).wait_for_end();
}

}  // namespace kolo::run
