// kolo-run: starts the ranks of a program on this host and, by ssh, on others, and owns the store
// where they meet. Or it has srun or mpirun start them. Run by people and scripts. The main thread
// looks after the processes; the store has a thread of its own.
#include "runtime/base/check.h"
#include "runtime/base/deadline.h"
#include "runtime/bootstrap/socket.h"
#include "runtime/bootstrap/tcp_store_server.h"
#include "tools/run/binding.h"
#include "tools/run/follower.h"
#include "tools/run/foreign.h"
#include "tools/run/job.h"
#include "tools/run/leader.h"
#include "tools/run/limited.h"
#include "tools/run/other_nodes.h"
#include "tools/run/plan.h"
#include "tools/run/say.h"
#include "tools/run/signals.h"
#include "tools/run/verdict.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace kolo;
using namespace kolo::run;

// Time for the name of a host that is created just now, such as a container's, to become known.
constexpr std::chrono::seconds kTimeForName(30);
// Time for ranks of other nodes to come and hear that node 0 has failed.
constexpr std::chrono::seconds kTimeForNodes(30);

/// Opens those that were closed for this process. Otherwise a socket would get the number, and
/// messages for people would go to the socket.
void open_standard_descriptors() {
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(standard, F_GETFD) >= 0) continue;
    ::open("/dev/null", O_RDWR);  // takes the lowest number that is free: this one
  }
}

void print_plan(const Options& options, const Plan& plan, const Environment& environment) {
  const Environment nothing({});
  for (const Place& place : plan.places) {
    fmt::print("rank {} on {}:", place.rank, place.host);
    for (const auto& [name, value] : variables_of(plan.job, place, nothing)) {
      if (name != "KOLO_SECRET") fmt::print(" {}={}", name, to_shell(value));
    }
    for (const std::string& word : plan.job.program) fmt::print(" {}", quoted(word));
    fmt::print("\n");
  }
  const bool as_root = ::geteuid() == 0;
  fmt::print("the same by mpirun: {}\n",
             to_shell(mpirun_command(options, plan, environment, as_root, true)));
  if (options.launcher == "srun") {
    std::string hosts = hosts_of_ranks(plan);
    std::replace(hosts.begin(), hosts.end(), '\n', ' ');
    fmt::print("by srun, with SLURM_HOSTFILE naming a file of the lines {}and MASTER_ADDR={}: {}\n",
               hosts, plan.job.master_addr, to_shell(srun_command(options, plan, true)));
  }
}

Error show_build(const Environment& environment) {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  // Installed in one folder; in a build tree, in folders next to each other.
  auto path = self.parent_path() / "kolo-info";
  if (!std::filesystem::exists(path, unknown)) {
    path = self.parent_path().parent_path() / "info" / "kolo-info";
  }
  return become({path.string(), "--build"}, environment.variables());
}

/// Stores `text` in a file in memory. The path is valid for this process and those that it becomes
/// or starts.
Result<std::string> open_file_of(const std::string& text) {
  const int file = ::memfd_create("kolo-run", 0);
  if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return KOLO_ERROR(kOutOfMemory, "cannot keep {} bytes in a file: {}", text.size(),
                      std::generic_category().message(errno));
  }
  return fmt::format("/proc/self/fd/{}", file);
}

/// Starts the store, and adds its port to the plan. `warn`, `patience`: see
/// TcpStoreServer::Options.
Result<std::unique_ptr<TcpStoreServer>> serve(Plan& plan,
                                              std::function<void(const std::string&)> warn,
                                              std::chrono::seconds patience = {}) {
  TcpStoreServer::Options store;
  store.endpoint = {plan.listen_host, static_cast<std::uint16_t>(plan.listen_port)};
  store.size = plan.job.size;
  store.least = plan.elastic.limits.least;
  store.patience = patience;
  if (plan.nodes > 1) {
    store.nodes = plan.nodes;
    store.slots = plan.hosts.front().slots;
  }
  store.secret = plan.job.secret;
  store.warn = std::move(warn);
  KOLO_ASSIGN(auto server, TcpStoreServer::start(std::move(store)));
  plan.listen_port = server->port();
  return server;
}

/// Once the store's port is known.
void tell_port(Plan& plan) {
  plan.job.store = to_text(Endpoint{plan.job.store, static_cast<std::uint16_t>(plan.listen_port)});
}

/// Once this node has failed: keeps the store until ranks of all nodes have heard it there. They
/// may still load libraries. A signal ends it.
void await_nodes(const TcpStoreServer& server) {
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stops, signal);
  const timespec pause = {.tv_sec = 0, .tv_nsec = 50'000'000};
  bool has_said = false;
  for (const Deadline end = Deadline::after(kTimeForNodes); !server.has_each_node();) {
    if (!std::exchange(has_said, true)) {
      say(fmt::format("waiting for the ranks of other nodes, for at most {} s, to tell them",
                      kTimeForNodes.count()));
    }
    if (end.expired() || ::sigtimedwait(&stops, nullptr, &pause) > 0) return;
  }
}

Status make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return KOLO_ERROR(kInvalidArgument, "--output-dir {}: {}", folder, error.message());
}

/// Checks that can still fail before anything is started.
Status prepare(const Options& options, const Environment& environment, Plan& plan) {
  KOLO_TRY(complete_plan(options, environment, plan));
  for (const std::string& line : plan.warnings) say(line);
  if (options.is_foreign() && options.job.grace)
    say(fmt::format("--grace has no effect with --launcher {}", options.launcher));
  const std::string& folder = options.job.output_directory;
  const bool has_foreign = std::any_of(plan.places.begin(), plan.places.end(),
                                       [](const Place& place) { return !place.is_here; });
  if (options.launcher == "srun" && !folder.empty() && has_foreign) {
    say(fmt::format("--output-dir {}: each host writes there itself: take a folder that all see",
                    folder));
  }
  return folder.empty() || options.dry_run ? Status() : make_folder(folder);
}

Result<int> run_foreign(const Options& options, Plan plan, const Environment& environment) {
  // The store of an elastic job makes its worlds, so kolo-run stays beside the launcher.
  std::unique_ptr<TcpStoreServer> server;
  if (plan.job.is_elastic) {
    KOLO_ASSIGN(server, serve(plan, say, plan.elastic.patience));
    for (const Place& place : plan.places) server->note_start(place.process);
    tell_port(plan);
    plan.job.set.push_back("KOLO_INIT_METHOD=" + init_method_of(plan.job));
  }
  Environment::Variables variables = variables_for(plan.job, environment);
  std::vector<std::string> command;
  if (options.launcher == "mpirun") {
    command = mpirun_command(options, plan, environment, ::geteuid() == 0, false);
  } else {
    tell_where_rank_0_is(options, plan, variables);
    variables.erase("SLURM_NTASKS_PER_NODE");  // value for the whole job; srun would warn of it
    KOLO_ASSIGN(variables["SLURM_HOSTFILE"], open_file_of(hosts_of_ranks(plan)));
    command = srun_command(options, plan, false);
  }
  if (!server && options.timeout == 0) return become(command, variables);
  const std::time_t since = std::time(nullptr);
  KOLO_ASSIGN(const int code, run_limited(command, variables, std::chrono::seconds(options.timeout),
                                          [&] { return server && server->has_lost_all(); }));
  const auto succeeded = server ? server->has_succeeded() : std::nullopt;
  if (!succeeded) return code;
  if (!*succeeded || code == kTimedOut) {
    if (server->is_elastic() && !*succeeded) say("no rank has ended its training in order");
    tell_verdict(plan.job, plan.places, environment, since, "");
    return code == 0 ? 1 : code;
  }
  // Other hosts may let nobody in but that launcher.
  std::erase_if(plan.places, [](const Place& place) { return !place.is_here; });
  remove_recordings(plan.job, plan.places, environment, since);
  // The launcher's status is that of ranks that were lost, too; mpirun's is then 0 in any case.
  return 0;
}

Result<int> run_job(Options options) {
  const Environment environment = Environment::of_process();
  if (options.checks_build) return show_build(environment);
  KOLO_ASSIGN(Plan plan, make_plan(options, environment));
  if (const Status ready = prepare(options, environment, plan); !ready.ok()) {
    if (options.dry_run || plan.nodes == 1) return ready.error();
    const int rank = plan.places.front().rank;
    if (!plan.serves) tell_of_failure(plan, rank, kCannotStart);
    if (!plan.serves || plan.job.is_elastic) return ready.error();
    say(ready.error().message);
    const auto server = serve(plan, say);
    if (!server.ok()) return server.error();
    tell_of_failure(plan, rank, kCannotStart);
    await_nodes(**server);
    return kCannotStart;
  }
  if (options.is_foreign() && !options.dry_run) return run_foreign(options, plan, environment);
  if (options.dry_run) {
    if (plan.listen_port == 0) plan.listen_port = free_port();
    tell_port(plan);
    print_plan(options, plan, environment);
    return 0;
  }
  if (plan.serves && !plan.listen_host.empty()) {
    // Before signals are blocked, so that a user who does not want to wait can interrupt it.
    KOLO_TRY(await_name({plan.listen_host, 0}, Deadline::after(kTimeForName),
                        [](const std::string& line) { say(line); }));
  }
  UniqueDescriptor node_0;  // likewise
  if (plan.job.is_elastic && !plan.serves) {
    KOLO_ASSIGN(node_0, join_node_0(plan));
  }
  block_signals();
  raise_open_files();
  std::atomic<bool> is_ending = false;
  options.job.on_end = [&is_ending] { is_ending = true; };
  std::unique_ptr<TcpStoreServer> server;
  if (plan.serves) {
    // Ranks that do not come then are no news.
    KOLO_ASSIGN(server, serve(plan, [&is_ending](const std::string& line) {
                  if (!is_ending) say(line);
                }));
    if (!plan.job.is_elastic)
      options.job.on_gone = [&server](int rank) { server->note_rank_end(rank); };
  }
  tell_port(plan);
  std::unique_ptr<Elastic> elastic;
  if (node_0) {
    elastic = std::make_unique<Follower>(std::move(node_0));
    plan.places.clear();  // node 0 says what to start
  } else if (plan.job.is_elastic) {
    elastic = std::make_unique<Leader>(plan.elastic, plan.hosts, *server);
  }
  options.job.elastic = elastic.get();
  if (options.timeout > 0) options.job.timeout = std::chrono::seconds(options.timeout);
  const auto until_met = Deadline::after(plan.time_to_meet);
  const auto tell_others = [&](int rank, int exit_code) {
    if (plan.nodes > 1 && !elastic && !until_met.expired()) tell_of_failure(plan, rank, exit_code);
  };
  GoneRanks gone(plan);
  if (!plan.serves && !elastic) {
    options.job.on_gone = [&](int rank) {
      if (!until_met.expired()) gone.tell(rank);
    };
  }
  // Called before the other ranks are ended. Otherwise the store would name one of them, which
  // still waits there, as the first that failed.
  options.job.on_first_failure = tell_others;
  const std::time_t since = std::time(nullptr);
  Job job(plan.job, options.job);
  auto code = job.run(plan.places, environment);
  const bool has_failed = !code.ok() || *code != 0;
  if (has_failed && !elastic && !job.first_failed())
    tell_others(plan.places.front().rank, code.ok() ? *code : kCannotStart);
  // After a signal the user does not want to wait.
  if (server && plan.nodes > 1 && !elastic && job.first_failed()) await_nodes(*server);
  const bool has_end = job.first_failed() && !job.first_end().empty();
  if (has_end || (code.ok() && *code == kTimedOut)) {
    const std::string ended =
        has_end ? fmt::format("{}:{}", *job.first_failed(), job.first_end()) : "";
    tell_verdict(plan.job, job.places(), environment, since, ended);
  }
  if (!has_failed && plan.job.is_elastic)
    remove_recordings(plan.job, job.places(), environment, since);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  if (argc > 1 && std::string_view(argv[1]) == kAsRank) {
    const Error error = become_rank({argv + 2, argv + argc}, Environment::of_process());
    say(error.message);
    return 2;
  }
  auto parsed = parse_options(argc, argv);
  if (const int* const code = std::get_if<int>(&parsed)) return *code;
  auto& options = std::get<Options>(parsed);
  for (const std::string& line : options.warnings) say(line);
  const auto code = run_job(std::move(options));
  if (code.ok()) return *code;
  say(code.error().message);
  return kCannotStart;
}
