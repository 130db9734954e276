#include "runtime/bootstrap/local_ranks.h"

#include "runtime/base/check.h"
#include "runtime/base/process_end.h"
#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/tcp_store_server.h"
#include "runtime/topology/cpu_limit.h"
#include "runtime/topology/host.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kMark = "SPAWNED_BY_KOLO";  // "parent's pid:call"
// Between SIGTERM and SIGKILL.
constexpr std::chrono::seconds kGrace(5);

struct Rank {
  pid_t pid = -1;
  UniqueDescriptor pidfd = {};
  bool ended = false;
};

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string word; std::getline(file, word, '\0');) arguments.push_back(word);
  return arguments;
}

Environment::Variables variables_of(int rank, int count, int call, const std::string& address,
                                    const std::string& secret, const Environment& environment) {
  Environment::Variables variables = environment.variables();
  const auto number = [](auto value) { return std::to_string(value); };
  variables["KOLO_RANK"] = variables["KOLO_LOCAL_RANK"] = variables["LOCAL_RANK"] = number(rank);
  variables["KOLO_SIZE"] = number(count);
  variables["KOLO_INIT_METHOD"] = "tcp://" + address + "?server=launcher";
  variables["KOLO_SECRET"] = secret;
  variables[kMark] = fmt::format("{}:{}", ::getpid(), call);
  const int cores = cores_within_limit(static_cast<int>(usable_cores().size()));
  variables.emplace("OMP_NUM_THREADS", number(std::max(1, cores / count)));
  return variables;
}

Result<Rank> start(const Environment::Variables& variables, std::vector<std::string> arguments) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
  const auto argv = pointers_to(arguments);
  const auto envp = pointers_to(texts);
  Rank rank;
  const int error =
      ::posix_spawn(&rank.pid, "/proc/self/exe", nullptr, nullptr, argv.data(), envp.data());
  if (error != 0) {
    return KOLO_ERROR(kOutOfMemory,
                      "cannot start rank {}: {}; see ulimit -u, and pids.max of a container",
                      variables.at("KOLO_RANK"), std::generic_category().message(error));
  }
  // The child is ours, so its pid cannot be reused before we wait for it.
  rank.pidfd = open_process(rank.pid);
  if (!rank.pidfd) {
    const int reason = errno;
    ::kill(rank.pid, SIGKILL);
    ::waitpid(rank.pid, nullptr, 0);
    return KOLO_ERROR(
        kOutOfMemory, "cannot watch rank {}: pidfd_open: {}; see {}", variables.at("KOLO_RANK"),
        std::generic_category().message(reason),
        reason == EMFILE || reason == ENFILE ? "ulimit -n" : "the container's seccomp profile");
  }
  return rank;
}

void signal_all(const std::vector<Rank>& ranks, int signal) {
  for (const Rank& rank : ranks) {
    if (!rank.ended) ::kill(rank.pid, signal);
  }
}

/// How a rank has ended. The code is that of a shell.
struct End {
  int code = 1;
  std::string text = "a status that this program's own handling of SIGCHLD has taken";
};

/// Nothing if the rank has not ended.
std::optional<End> reap(Rank& rank) {
  int status = 0;
  const pid_t waited = ::waitpid(rank.pid, &status, 0);
  if (waited < 0 && errno != ECHILD) return std::nullopt;
  rank.ended = true;
  rank.pidfd.reset();
  if (waited != rank.pid) return End{};
  if (!WIFSIGNALED(status))
    return End{WEXITSTATUS(status), fmt::format("exit status {}", WEXITSTATUS(status))};
  const int signal = WTERMSIG(status);
  return End{128 + signal, fmt::format("signal {} ({})", signal, ::strsignal(signal))};
}

/// For poll(): -1 means that it does not end by itself.
int milliseconds_until(Clock::time_point end) {
  if (end == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<std::int64_t>(left, 0));
}

/// Writes a line to stderr. Ignores errors, because the reader may be gone.
void say(const std::string& what) {
  const std::string line = "kolo::spawn: " + what + "\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

/// While it lives, the kernel keeps children's statuses, even if the program ignores SIGCHLD.
class KeptStatuses {
 public:
  KeptStatuses() {
    ::sigaction(SIGCHLD, nullptr, &before_);
    if (before_.sa_handler == SIG_IGN) ::signal(SIGCHLD, SIG_DFL);
  }
  ~KeptStatuses() {
    if (before_.sa_handler == SIG_IGN) ::sigaction(SIGCHLD, &before_, nullptr);
  }
  KeptStatuses(const KeptStatuses&) = delete;
  KeptStatuses& operator=(const KeptStatuses&) = delete;

 private:
  struct sigaction before_ = {};
};

/// Waits until all ranks have ended and returns the status of the first failure. `first`: a failure
/// that is known already; later ones are then not reported.
int wait_for(std::vector<Rank>& ranks, int first = 0) {
  auto kill_at = Clock::time_point::max();
  while (true) {
    std::vector<pollfd> polled;
    for (const Rank& rank : ranks) polled.push_back({rank.pidfd.get(), POLLIN, 0});
    if (std::all_of(ranks.begin(), ranks.end(), [](const Rank& rank) { return rank.ended; })) {
      return first;
    }
    if (::poll(polled.data(), polled.size(), milliseconds_until(kill_at)) == 0) {
      signal_all(ranks, SIGKILL);
      kill_at = Clock::time_point::max();
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (polled[i].revents == 0) continue;
      const auto end = reap(ranks[i]);
      if (!end || end->code == 0 || first != 0) continue;
      first = end->code;
      signal_all(ranks, SIGTERM);
      kill_at = Clock::now() + kGrace;
      say(fmt::format("rank {} (pid {}) was the first to end with an error, {}; ending the others",
                      i, ranks[i].pid, end->text));
    }
  }
}

/// Whether `item` is a number, or a name such as GPU-8932f937-… or MIG-….
bool is_device(const std::string& item) {
  if (item.starts_with("GPU-") || item.starts_with("MIG-")) return true;
  return !item.empty() &&
         std::all_of(item.begin(), item.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Mark {
  int parent = 0;
  int call = 0;
};

std::optional<Mark> mark_of(const Environment& environment) {
  const auto text = environment.get(kMark);
  Mark mark;
  if (!text || std::sscanf(text->c_str(), "%d:%d", &mark.parent, &mark.call) != 2) {
    return std::nullopt;
  }
  return mark;
}

}  // namespace

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::optional<int> spawned_by_call(const Environment& environment) {
  const auto mark = mark_of(environment);
  return mark && mark->parent == ::getppid() ? std::optional(mark->call) : std::nullopt;
}

bool is_orphan_of_spawn(const Environment& environment) {
  const auto mark = mark_of(environment);
  return mark && mark->parent != ::getppid() && has_ended(mark->parent);
}

Result<int> run_local_ranks(int count, int call, const Environment& environment) {
  TcpStoreServer::Options options;
  options.endpoint = {"127.0.0.1", 0};
  options.size = count;
  KOLO_ASSIGN(const std::string secret_bytes, random_bytes(16));
  options.secret = to_hex(secret_bytes);
  const std::string secret = options.secret;
  KOLO_ASSIGN(const auto server, TcpStoreServer::start(std::move(options)));
  const std::string address = to_text(Endpoint{"127.0.0.1", server->port()});
  const auto arguments = own_arguments();
  const KeptStatuses kept;
  std::vector<Rank> ranks;
  for (int rank = 0; rank < count; ++rank) {
    auto started = start(variables_of(rank, count, call, address, secret, environment), arguments);
    if (!started.ok()) {
      signal_all(ranks, SIGKILL);
      wait_for(ranks, 1);
      return std::move(started).error();
    }
    ranks.push_back(*std::move(started));
  }
  return wait_for(ranks);
}

int visible_devices(const Environment& environment) {
  // An empty value hides all devices.
  const auto list = environment.variables().find("CUDA_VISIBLE_DEVICES");
  if (list != environment.variables().end()) {
    // As CUDA reads the list: entries after the first invalid one do not count.
    int named = 0;
    std::istringstream items(list->second);
    for (std::string item; std::getline(items, item, ',') && is_device(item);) ++named;
    return named;
  }
  int count = 0;
  std::error_code unknown;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count), unknown)) ++count;
  return count;
}

}  // namespace kolo
