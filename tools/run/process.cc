#include "tools/run/process.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/local_ranks.h"
#include "tools/run/cannot_run.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

namespace kolo::run {
namespace {

struct Pipe {
  UniqueDescriptor read;
  UniqueDescriptor write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return KOLO_ERROR(kOutOfMemory, "no pipe to a rank: {}; see ulimit -n",
                      std::generic_category().message(errno));
  }
  return Pipe{UniqueDescriptor(ends[0]), UniqueDescriptor(ends[1])};
}

/// Everything that the child needs, made before the fork. The store's thread may hold the heap's
/// lock during the fork, so the child makes only system calls.
struct Child {
  std::vector<std::string> argument_texts;
  std::vector<std::string> variable_texts;
  std::vector<char*> arguments;
  std::vector<char*> variables;
  cpu_set_t processors = {};
  bool binds = false;
  int input = -1;
  int out = -1;  ///< −1: kolo-run's output
  int error = -1;
  int report = -1;  ///< takes errno if the program cannot be executed
  pid_t parent = -1;
  bool is_agent = false;
  rlimit open_files = {};

  [[noreturn]] void run() const {
    if (is_agent) {
      ::setsid();
    } else {
      ::setpgid(0, 0);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    if (open_files.rlim_max > 0) ::setrlimit(RLIMIT_NOFILE, &open_files);
    ::dup2(input, STDIN_FILENO);
    if (out >= 0) ::dup2(out, STDOUT_FILENO);
    if (error >= 0) ::dup2(error, STDERR_FILENO);
    if (binds) ::sched_setaffinity(0, sizeof processors, &processors);
    // The parent may have died before prctl() asked for a signal at its death.
    if (::getppid() == parent) ::execvpe(arguments[0], arguments.data(), variables.data());
    const int reason = errno;
    [[maybe_unused]] const auto written = ::write(report, &reason, sizeof reason);
    ::_exit(127);
  }
};

rlimit given_open_files = {};  ///< the limit before raise_open_files()

}  // namespace

void raise_open_files() {
  if (::getrlimit(RLIMIT_NOFILE, &given_open_files) != 0) return;
  const rlimit most = {given_open_files.rlim_max, given_open_files.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &most);
}

Result<Process> start_process(const Place& place, const Command& command,
                              const StartOptions& options) {
  Process process{.place = place};
  process.is_remote = command.is_remote;
  Pipe input, out, error;
  if (command.is_remote) {
    KOLO_ASSIGN(input, make_pipe());
    ::fcntl(input.write.get(), F_SETFL, O_NONBLOCK);
  } else {
    input.read.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (options.captures_output) {
    KOLO_ASSIGN(out, make_pipe());
    KOLO_ASSIGN(error, make_pipe());
  }
  KOLO_ASSIGN(Pipe report, make_pipe());

  Child child;
  child.argument_texts = command.arguments;
  for (const auto& [name, value] : command.variables) {
    child.variable_texts.push_back(name + "=" + value);
  }
  child.arguments = pointers_to(child.argument_texts);
  child.variables = pointers_to(child.variable_texts);
  child.binds = !options.processors.empty();
  for (const int processor : options.processors) CPU_SET(processor, &child.processors);
  child.input = input.read.get();
  child.out = out.write ? out.write.get() : options.out;
  child.error = error.write ? error.write.get() : options.error;
  child.report = report.write.get();
  child.parent = ::getpid();
  child.is_agent = command.is_remote;
  child.open_files = given_open_files;

  process.pid = ::fork();
  if (process.pid == 0) child.run();
  if (process.pid < 0) {
    return KOLO_ERROR(kOutOfMemory,
                      "cannot start rank {}: {}; see ulimit -u, and pids.max of a container",
                      place.rank, std::generic_category().message(errno));
  }
  report.write.reset();
  int reason = 0;
  if (::read(report.read.get(), &reason, sizeof reason) == sizeof reason) {
    ::waitpid(process.pid, nullptr, 0);
    return KOLO_ERROR(kInvalidArgument, "cannot run '{}': {}", command.arguments[0],
                      why_it_cannot_run(command.arguments[0], reason));
  }
  process.input = std::move(input.write);
  process.unsent = command.input;
  feed(process);
  process.out = std::move(out.read);
  process.error = std::move(error.read);
  return process;
}

void send_signal(const Process& process, int signal) {
  if (!process.is_gone) ::kill(-process.pid, signal);
}

void feed(Process& process) {
  while (process.input && !process.unsent.empty()) {
    const auto written = ::write(process.input.get(), process.unsent.data(), process.unsent.size());
    if (written > 0) {
      process.unsent.erase(0, static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      process.unsent.clear();  // its status reports its end
    }
  }
}

std::string describe_status(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace kolo::run
