// The global interface: one Runtime behind free functions, its start and its end. The process's
// runtime is a global of this file. Any thread.
#include "bindings/core/global.h"
#include "bindings/core/init_options.h"
#include "bindings/core/job_members.h"
#include "bindings/core/local_rank.h"
#include "bindings/core/regroup.h"
#include "bindings/core/world_splits.h"
#include "runtime/base/check.h"
#include "runtime/base/environment.h"
#include "runtime/base/printable.h"
#include "runtime/base/resource_limits.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/bootstrap/rendezvous.h"
#include "runtime/bootstrap/secret_file.h"
#include "runtime/device/device_choice.h"
#include "runtime/nccl/nccl_api.h"
#include "transport/ucx/ucx_transport.h"

#include <kolo/kolo.h>
#include <kolo/membership.h>

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kolo {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the process exit waits for other threads that hold the lock or drive progress. One of
/// them may be announcing a failure to the other ranks, which takes some seconds.
constexpr std::chrono::seconds kPatience{10};
/// Delay of kShutdown in a thread while another thread ends the process. Sending a shutdown notice
/// takes at most two seconds.
constexpr std::chrono::seconds kHeldBack{3};
/// Worlds of an elastic job that may fail in a row before they have begun.
constexpr int kMostAttempts = 16;

struct Global {
  std::mutex mutex;
  std::shared_ptr<Runtime> runtime;
  /// Odd while there is a runtime that is not shutting down. Each runtime has its own number.
  std::atomic<std::uint64_t> era = 0;
  /// Number of calls of start(), successful or not.
  int starts = 0;
  std::shared_ptr<int> exchanges = std::make_shared<int>(0);  ///< see MeetingParts::exchanges
  // The rendezvous methods used so far, finalised at exit. After a failure each is finalised alone.
  std::vector<std::unique_ptr<Bootstrap>> bootstraps;
  bool last_start_failed = false;
  InitOptions options;  ///< as init() got them
  Membership membership = {};
  JobMembers members = {};
  MeasuredExchange measured_exchange = {};
  /// True within init(), which holds the lock for long.
  std::atomic<bool> starting = false;
  /// The thread that ends the process, once there is one.
  std::atomic<std::thread::id> ending = {};
  /// The process ends without a shutdown notice of this rank. Other threads may still use Global.
  std::atomic<bool> abandoned = false;
  /// Flight recorders' files of worlds that did not fail. They may still be there: see
  /// FlightRecorder::close().
  std::vector<std::string> recordings = {};
  /// Ranks may be gone; a later start does not bring them back.
  bool a_job_failed = false;
  /// The parent process, in a child that was forked after a call of init(); else 0.
  std::atomic<pid_t> forked_from = 0;
};

/// Never destroyed: other threads, or the call that exit() interrupted, may be using it.
Global& global() {
  static Global& instance = *new Global;
  return instance;
}

/// Set when Known is destroyed. It has no destructor, so later static destructors can read it.
thread_local bool forgets = false;
/// Cache of each thread that avoids the lock. It keeps no runtime alive.
struct Known {
  ~Known() { forgets = true; }
  std::uint64_t era = 0;
  std::weak_ptr<Runtime> runtime;
  std::shared_ptr<Driver> driver;
};
thread_local Known known;

// A forked child inherits the runtime without the threads that drive it, the parent's connections
// and perhaps a locked mutex or half-changed data. The child must not use any of these, nor send a
// shutdown notice. So it abandons the old Global without running destructors and starts with a new
// one.
void on_fork_in_child() {
  const pid_t parent = getppid();
  std::construct_at(&global())->forked_from = parent;
}

/// Whether nothing of Global may be touched, the lock included.
bool is_off(const Global& g) { return g.forked_from != 0 || g.abandoned; }

[[noreturn]] void raise_not_running(std::string_view call) {
  raise(KOLO_ERROR(kShutdown,
                   "kolo::{}() was called before kolo::init(), or after kolo::shutdown()", call));
}

void refuse_if_off(const Global& g, std::string_view call) {
  if (g.abandoned) raise_not_running(call);
  if (g.forked_from == 0) return;
  raise(KOLO_ERROR(kUnsupported,
                   "kolo::{}() was called in process {}, which process {} forked after "
                   "kolo::init(): a forked child has no part in the job; fork before init(), or "
                   "start the child by exec",
                   call, getpid(), g.forked_from.load()));
}

/// Returns false if a thread still drives progress at `until`; then nothing has ended.
bool shutdown_locked(Global& g, Clock::time_point until) {
  if (!g.runtime) return true;
  ++g.era;
  g.a_job_failed |= g.runtime->failed();
  if (!g.runtime->shut_down(until)) return false;
  // A world of the same processes has its file at the same path.
  std::erase(g.recordings, g.runtime->recording());
  if (!g.runtime->failed()) g.recordings.push_back(g.runtime->recording());
  g.runtime.reset();
  return true;
}

/// Returns false if init() holds the lock, or if the lock stays taken until then.
bool lock_until(Clock::time_point until, const Global& g, std::unique_lock<std::mutex>& lock) {
  while (!lock.try_lock()) {
    if (g.starting || Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Returns false if the lock or the progress token stays taken; then nothing is changed. `is_done`:
/// the process has done what it was for.
bool end_in_order(Global& g, bool is_done) {
  // exit() may run in a signal handler or a callback: the interrupted call may hold either.
  if (InCall::here()) return false;
  const Clock::time_point until = Clock::now() + kPatience;
  std::unique_lock lock(g.mutex, std::defer_lock);
  if (!lock_until(until, g, lock)) return false;
  if (!shutdown_locked(g, until)) return false;
  const bool alone = g.last_start_failed || g.a_job_failed;
  for (const auto& bootstrap : g.bootstraps) {
    // A collective finalize would wait for ranks that are gone.
    alone ? bootstrap->finalize_alone() : bootstrap->finalize();
  }
  g.bootstraps.clear();
  // torch's FileStore removes its file once no process holds it. Until then a store is kept: the
  // next world may meet at the port that rank 0's TCPStore has.
  g.options.store = nullptr;
  g.members.leave_at_exit(is_done);
  if (is_done)
    for (const std::string& file : g.recordings) ::unlink(file.c_str());
  return true;
}

// Without a shutdown notice the other ranks detect the end of this process as if it was killed.
void at_exit(int status, void*) {
  Global& g = global();
  if (g.forked_from != 0) return;
  g.ending = std::this_thread::get_id();
  g.abandoned = !end_in_order(g, /*is_done=*/status == 0);
}

std::shared_ptr<Runtime> find_runtime(std::string_view call) {
  Global& g = global();
  refuse_if_off(g, call);
  if (!forgets && g.era.load(std::memory_order_acquire) == known.era) {
    if (auto runtime = known.runtime.lock()) return runtime;
  }
  {
    const std::lock_guard lock(g.mutex);
    if (g.runtime) {
      if (!forgets) {
        known.era = g.era;
        known.runtime = g.runtime;
        known.driver = g.runtime->driver_of_small_calls();
      }
      return g.runtime;
    }
  }
  raise_not_running(call);  // without the lock, because raise() may sleep
}

/// Opens local resources before this rank talks to the others.
Result<std::unique_ptr<Transport>> open_transport(const Environment& environment,
                                                  const Config& config, const Status& invalid) {
  KOLO_TRY(invalid);
  return make_ucx_transport({.environment = environment,
                             .interface = config.interface,
                             .shows_log = Log(config.log_level).enabled(LogLevel::kInfo)});
}

/// `invalid`: the error of `config`, if any.
Result<std::shared_ptr<Runtime>> connect(Bootstrap& bootstrap, const RendezvousMethod& way,
                                         Global& g, const Environment& environment, Config config,
                                         Log log, const Status& invalid, StartUpTimes times) {
  const InitOptions& options = g.options;
  auto opened = open_transport(environment, config, invalid);
  if (!opened.ok()) {
    refuse_handshake(bootstrap, describe_this_process(config.host_id), opened.error(),
                     Deadline::after(std::chrono::seconds(config.init_timeout_s)));
    return std::move(opened).error();
  }
  auto transport = *std::move(opened);
  times.ended("network");
  const DeviceWish wish{.knob = config.device, .option = options.device};
  const auto open_accelerator_of = [wish, way](const World& world, std::string& reason) {
    return open_device(wish, way, world, reason);
  };
  if (options.backend == "nccl") config.operations = options.backend;
  const auto open_library = []() -> Result<std::shared_ptr<NcclApi>> {
    KOLO_ASSIGN(std::unique_ptr<NcclApi> nccl, open_nccl());
    return std::shared_ptr<NcclApi>(std::move(nccl));
  };
  KOLO_ASSIGN(
      auto runtime,
      Runtime::start(bootstrap, {.config = std::move(config),
                                 .log = std::move(log),
                                 .transport = std::move(transport),
                                 .process_sets = options.process_sets,
                                 .agreed = agreed_options(options, way, world_splits().size()),
                                 .open_accelerator = open_accelerator_of,
                                 .open_nccl = open_library,
                                 .measured_exchange = &g.measured_exchange,
                                 .times = std::move(times)}));
  return std::shared_ptr<Runtime>(std::move(runtime));
}

void warn_of(const Config& config, const Log& log) {
  for (const std::string& line : config.warnings) log.warning("{}", line);
}

void set_timeout(Config& config, const InitOptions& options, const Regroup* regroup) {
  if (options.timeout) config.init_timeout_s = options.timeout->count();
  if (regroup != nullptr && regroup->timeout) config.init_timeout_s = regroup->timeout->count();
}

/// Warns of the configuration, too.
Result<RendezvousMethod> find_way(const InitOptions& options, const Config& config,
                                  const Environment& environment, const Regroup* regroup,
                                  const Log& log) {
  auto found = regroup != nullptr
                   ? Result<RendezvousMethod>(regroup->way)
                   : find_rendezvous_method(request_of(options), config, environment);
  // Warn before errors that the warnings may explain. The ranks of a host mostly have the same
  // variables, so local rank 0 warns for all of them.
  if (!found.ok() || announced_local_rank(*found, environment) == 0) warn_of(config, log);
  return found;
}

Result<std::string> secret_of(const Config& config, const Regroup* regroup) {
  auto secret = secret_or_file(config.secret, config.secret_file);
  if (secret.ok() && regroup != nullptr && !regroup->secret.empty()) return regroup->secret;
  return secret;
}

/// `regroup`: meets as it says; null: as options and environment say.
Result<std::shared_ptr<Runtime>> start(Global& g, const InitOptions& options, bool joins,
                                       const Regroup* regroup) {
  ++g.starts;
  StartUpTimes times;
  const Environment environment = Environment::of_process();
  // Other ranks get the error of an invalid configuration, if this rank can reach them.
  Status invalid;
  Config config = Config::from_environment(environment, invalid);
  if (invalid.ok()) invalid = check_resource_limits(environment);
  const auto reason_or = [&invalid](Error error) -> Error {
    if (!invalid.ok()) return invalid.error();
    return error;
  };
  Log log(config.log_level);
  KOLO_TRY(check_options(options));
  set_timeout(config, options, regroup);
  auto found = find_way(options, config, environment, regroup, log);
  if (!found.ok()) return reason_or(std::move(found).error());
  const RendezvousMethod way = *std::move(found);
  log.info("rendezvous: {}", to_text(way));
  const std::chrono::seconds timeout(config.init_timeout_s);
  const std::string level = config.log_level;
  auto secret = secret_of(config, regroup);
  if (!secret.ok()) return reason_or(std::move(secret).error());
  const std::chrono::seconds heartbeat(config.heartbeat_timeout_s);
  KOLO_TRY(g.members.find(way, *secret, options, heartbeat, /*regrouped=*/regroup != nullptr));
  StoreLobby* const lobby = g.members.lobby();
  KOLO_TRY(check_process_sets(options, lobby != nullptr || way.meeting == Meeting::kElastic));
  MeetingParts meeting{
      .secret = *std::move(secret),
      .number = g.starts,
      .exchanges = g.exchanges,
      .mpi_communicator = options.mpi_comm,
      .joins_next_world = joins,
      .outlasts_refusals = regroup != nullptr,
      .lobby = lobby,
      .warn = [level](const std::string& line) { Log(level).warning("{}", line); }};
  if (options.store) meeting.store = adapt_store(options.store, options.group_name);
  auto bootstrap = meet(way, std::move(meeting), environment, Deadline::after(timeout));
  if (!bootstrap.ok()) return reason_or(std::move(bootstrap).error());
  times.ended("meeting");
  Bootstrap& method = **bootstrap;
  g.membership = {way.meeting == Meeting::kElastic || lobby != nullptr, method.generation()};
  if (g.membership.is_elastic) g.bootstraps.clear();  // those of earlier worlds have no end to come
  g.bootstraps.push_back(*std::move(bootstrap));
  auto runtime = connect(method, way, g, environment, std::move(config), std::move(log), invalid,
                         std::move(times));
  if (!runtime.ok()) runtime = method.give_up(std::move(runtime).error());
  // Registered after MPI_Init() and the first CUDA call, so that their exit handlers run after
  // ours.
  static const int registered = ::on_exit(at_exit, nullptr);
  KOLO_CHECK(registered == 0);
  method.leave(runtime.ok(), Deadline::after(timeout));
  if (runtime.ok()) check_local_rank(way, (*runtime)->world(), level);
  return runtime;
}

/// The program's memory is on this rank's device, whatever its place in the next world is.
void keep_device(Global& g) {
  if (g.membership.is_elastic && g.runtime->accelerator() != nullptr)
    g.options.device = g.runtime->accelerator()->info().ordinal;
}

/// Precondition: there is no runtime. `joins`: see MeetingParts::joins_next_world; `regroup`: see
/// start().
Status begin_locked(Global& g, bool joins, const Regroup* regroup = nullptr) {
  static const int registered = pthread_atfork(nullptr, nullptr, on_fork_in_child);
  KOLO_CHECK(registered == 0);
  g.starting = true;
  auto runtime = start(g, g.options, joins, regroup);
  g.starting = false;
  g.last_start_failed = !runtime.ok();
  if (!runtime.ok()) return std::move(runtime).error();
  g.runtime = *std::move(runtime);
  ++g.era;
  g.members.reach_launcher();
  keep_device(g);
  return {};
}

/// Whether the error says that another rank or its network is lost.
bool is_loss(const Error& error) {
  return error.code == ErrorCode::kPeerLost || error.code == ErrorCode::kTransport;
}

}  // namespace

Exception::Exception(Error error)
    : std::runtime_error(printable(error.message)), error_(std::move(error)) {
  error_.message = what();
}

void raise(Error error) {
  const std::thread::id ending = global().ending;
  const bool by_other = ending != std::thread::id() && ending != std::this_thread::get_id();
  if (by_other && error.code == ErrorCode::kShutdown) std::this_thread::sleep_for(kHeldBack);
  throw Exception(std::move(error));
}

RuntimeCall::RuntimeCall(std::string_view call) : runtime_(find_runtime(call)) {}

void init(const InitOptions& options) {
  Global& g = global();
  refuse_if_off(g, "init");
  const InCall in_call;
  const std::lock_guard lock(g.mutex);
  if (g.runtime) raise(KOLO_ERROR(kInvalidArgument, "kolo::init() was called twice"));
  g.options = options;
  world_splits().clear();
  throw_if_failed(begin_locked(g, false));
}

Membership membership() {
  static_cast<void>(runtime_for("membership"));
  const std::lock_guard lock(global().mutex);
  return global().membership;
}

int newcomers() {
  Global& g = global();
  const std::lock_guard lock(g.mutex);
  if (g.runtime && !g.membership.is_elastic && value_or_throw(g.members.begin(g.options))) {
    g.membership = {true, 1};
    keep_device(g);
    if (g.options.store && g.options.store->is_served_here()) {
      g.runtime->log().warning(
          "this job does not survive the loss of rank {}, which serves the store of the members; "
          "let another process serve it, start the ranks by kolo-run with --min-np, or let them "
          "meet in a file (KOLO_INIT_METHOD=file:///path)",
          g.runtime->world().rank());
    }
  }
  if (g.membership.is_elastic) world_splits().close();
  return g.members.newcomers();
}

std::optional<Error> loss() {
  if (!is_initialized()) return std::nullopt;
  const Status failure = runtime_for("loss")->failure();
  if (failure.ok() || !is_loss(failure.error())) return std::nullopt;
  return failure.error();
}

void enter_next_world() {
  Global& g = global();
  refuse_if_off(g, "enter_next_world");
  const InCall in_call;
  const std::lock_guard lock(g.mutex);
  if (g.runtime) {
    raise(KOLO_ERROR(kInvalidArgument,
                     "kolo::enter_next_world() was called before kolo::shutdown()"));
  }
  if (!g.membership.is_elastic) {
    raise(
        KOLO_ERROR(kUnsupported, "kolo::enter_next_world(): {}", why_not_elastic(g.members.way())));
  }
  for (int attempt = 1;; ++attempt) {
    world_splits().leave();
    Status begun = begin_locked(g, true);
    if (begun.ok()) begun = world_splits().enter(*g.runtime);
    if (begun.ok()) return;
    static_cast<void>(shutdown_locked(g, Clock::time_point::max()));
    if (!is_loss(begun.error()) || attempt == kMostAttempts) raise(begun.error());
  }
}

void regroup(const std::function<Regroup(InitOptions& options)>& find) {
  Global& g = global();
  refuse_if_off(g, "reconfigure");
  const InCall in_call;
  const std::lock_guard lock(g.mutex);
  InitOptions options = g.options;
  const Regroup regroup = find(options);
  options.process_sets.clear();  // ranks of the world that ends
  if (g.runtime && g.runtime->accelerator() != nullptr)
    options.device = g.runtime->accelerator()->info().ordinal;
  static_cast<void>(shutdown_locked(g, Clock::time_point::max()));
  g.options = std::move(options);
  world_splits().clear();
  throw_if_failed(begin_locked(g, false, &regroup));
}

std::string why_not_elastic() {
  const std::lock_guard lock(global().mutex);
  return why_not_elastic(global().members.way());
}

std::uint64_t world_number() {
  const std::uint64_t era = global().era.load(std::memory_order_acquire);
  return era % 2 == 1 ? era : 0;
}

void init(int, char**, const InitOptions& options) { init(options); }

void shutdown() {
  Global& g = global();
  // The call that a signal handler or a callback interrupted cannot be ended beneath it.
  if (is_off(g) || InCall::here()) return;
  const InCall in_call;
  const std::lock_guard lock(g.mutex);
  static_cast<void>(shutdown_locked(g, Clock::time_point::max()));
}

void abort(const std::string& reason) {
  if (is_initialized() && !InCall::here()) runtime_for("abort")->abort(reason);
}

bool is_initialized() {
  Global& g = global();
  return !is_off(g) && g.era % 2 == 1;
}

bool cuda_built() { return KOLO_CUDA_BUILT != 0; }
bool nccl_built() { return nccl_is_built(); }
std::string version() { return KOLO_VERSION; }

Driver* known_driver() {
  if (forgets || global().era.load(std::memory_order_acquire) != known.era) return nullptr;
  return known.driver.get();
}

}  // namespace kolo
