#include "runtime/cycle/runtime.h"

#include "runtime/base/check.h"
#include "runtime/base/fnv.h"
#include "runtime/base/open_files.h"
#include "runtime/bootstrap/clock_exchange.h"
#include "runtime/bootstrap/handshake.h"
#include "runtime/device/device.h"
#include "runtime/planning/route_table.h"
#include "transport/checked_transport.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace kolo {

namespace {

std::string to_text(const std::vector<std::vector<int>>& sets) {
  std::string text;
  for (const auto& ranks : sets) text += fmt::format("[{}]", fmt::join(ranks, ", "));
  return text;
}

/// Each rank may connect to every other rank, and every other rank to it.
void make_room_for(int rank, int ranks, const Log& log) {
  const std::size_t wanted = 2 * static_cast<std::size_t>(ranks) + kOtherDescriptors;
  const std::size_t limit = make_room_for_files(wanted);
  if (limit >= wanted || rank != 0) return;
  log.warning(
      "this process may open {} files, and a job of {} ranks may take {}: connections beyond that "
      "fail. Raise the hard limit (ulimit -Hn, LimitNOFILE=, limits.conf)",
      limit, ranks, wanted);
}

/// Checksums are for messages in host memory, so these carry everything.
void check_the_wire(RuntimeParts& parts) {
  parts.config.shared_memory = 0;
  parts.config.device_memory = 0;
  parts.transport = std::make_unique<CheckedTransport>(std::move(parts.transport));
}

}  // namespace

Runtime::Runtime(World world, RuntimeParts parts, std::unique_ptr<Timeline> timeline)
    : config_(std::move(parts.config)),
      log_(std::move(parts.log)),
      transport_(std::move(parts.transport)),
      timeline_(std::move(timeline)),
      device_(host_device(), static_cast<int>(config_.reduce_threads)),
      window_(std::move(parts.reserved_memory)),
      finite_check_(config_.check_finite, log_),
      arena_(*transport_, &devices_),
      services_{*transport_, device_.quickest(), window_,    devices_,
                arena_,      schedules_,         *timeline_, flight_recorder_},
      groups_(std::move(world), services_, waker_, nccl_, config_, log_),
      start_up_(std::move(parts.times)),
      cycle_(groups_, services_, links_, config_, log_),
      driver_(std::make_shared<Driver>(cycle_, groups_, *transport_, waker_, *timeline_,
                                       this->world().has_core_for_each_rank())) {}

Result<std::unique_ptr<Runtime>> Runtime::start(Bootstrap& bootstrap, RuntimeParts parts) {
  const std::vector<std::string> settings = parts.config.agreed_settings();
  if (parts.config.wire_check != 0) check_the_wire(parts);
  const std::chrono::seconds timeout(parts.config.init_timeout_s);
  make_room_for(bootstrap.rank(), bootstrap.size(), parts.log);
  auto timeline = Timeline::open({.path = parts.config.timeline,
                                  .rank = bootstrap.rank(),
                                  .size = bootstrap.size(),
                                  .steps = parts.config.timeline_steps != 0});
  Handshake mine;
  mine.clock = trace_now();
  // Every rank reports it, and none waits for this one.
  if (!timeline.ok()) mine.complaint = timeline.error().message;
  if (parts.config.wire_check != 0 && parts.config.operations == "nccl" && mine.complaint.empty())
    mine.complaint =
        "KOLO_WIRE_CHECK=1 checks kolo's own messages, but KOLO_OPERATIONS=nccl sends others; set "
        "one of them";
  mine.transport = std::string(parts.transport->name());
  mine.address = parts.transport->address();
  mine.settings = settings;
  mine.settings.push_back("process_sets=" + to_text(parts.process_sets));
  mine.settings.insert(mine.settings.end(), parts.agreed.begin(), parts.agreed.end());
  mine.info = describe_this_process(parts.config.host_id);
  KOLO_ASSIGN(std::vector<Handshake> all,
              exchange_handshake(bootstrap, std::move(mine), Deadline::after(timeout)));

  parts.times.ended("handshake");
  std::vector<RankInfo> infos;
  for (Handshake& handshake : all) infos.push_back(std::move(handshake.info));
  if (parts.config.numa_nodes > 0)
    impose_numa_nodes(infos, static_cast<int>(parts.config.numa_nodes));
  World world(bootstrap.rank(), std::move(infos));
  const std::int64_t clock_of_0 = all.front().clock;
  std::vector<Peer> peers;
  for (int rank = 0; rank < world.size(); ++rank) {
    peers.push_back({std::move(all[static_cast<std::size_t>(rank)].address),
                     world.same_host(rank, world.rank())});
  }
  parts.log.set_rank(world.rank());
  const auto process_sets = std::move(parts.process_sets);
  const auto open_accelerator = std::move(parts.open_accelerator);
  const auto open_nccl = std::move(parts.open_nccl);
  MeasuredExchange* const measured = parts.measured_exchange;
  std::unique_ptr<Runtime> runtime(
      new Runtime(std::move(world), std::move(parts), *std::move(timeline)));
  KOLO_TRY(runtime->add_initial_process_sets(process_sets));
  const auto connect = [&]() -> Status {
    KOLO_TRY(runtime->connect(bootstrap, std::move(peers), open_accelerator));
    if (runtime->config_.operations == "nccl")
      KOLO_TRY(runtime->connect_nccl(bootstrap, open_nccl));
    runtime->cycle_.open_first_links();
    runtime->driver_->start();
    if (measured != nullptr)
      KOLO_TRY(runtime->choose_exchange(bootstrap, *measured, Deadline::after(timeout)));
    runtime->start_up_.ended("ways");
    KOLO_TRY(runtime->compare_clocks(bootstrap, clock_of_0));
    runtime->start_up_.ended("clocks");
    runtime->driver_->with_token([&] { runtime->timeline_->start(runtime->timeline_origin_); });
    return {};
  };
  if (const Status connected = connect(); !connected.ok())
    return runtime->give_up(bootstrap, connected.error());
  runtime->start_flight_recorder();
  runtime->rendezvous_ = bootstrap.description();
  runtime->log_start(bootstrap);
  return runtime;
}

Status Runtime::connect(Bootstrap& bootstrap, std::vector<Peer> peers,
                        const OpenAccelerator& open) {
  const auto deadline = [this] {
    return Deadline::after(std::chrono::seconds(config_.init_timeout_s));
  };
  KOLO_TRY(transport_->connect(world().rank(), std::move(peers), cycle_,
                               groups_.world().communicator().abort(), deadline()));
  start_up_.ended("connections");
  const HostWindow::Sizes sizes{.slots = static_cast<std::size_t>(config_.shared_memory),
                                .arena = static_cast<std::size_t>(config_.arena)};
  KOLO_TRY(window_.open(bootstrap, *transport_, world(), sizes, log_, deadline()));
  groups_.open_control_segments(exchange_use(config_.algorithm));
  start_up_.ended("windows");
  std::string reason = "none was asked for";
  std::unique_ptr<Accelerator> accelerator;
  if (open) {
    auto opened = open(world(), reason);
    KOLO_TRY(require_all(bootstrap, "devices", world().info(world().rank()),
                         opened.ok() ? Status() : opened.error(), deadline()));
    accelerator = *std::move(opened);
  }
  const DeviceWindow::Sizes of_device{.slots = static_cast<std::size_t>(config_.device_memory),
                                      .arena = static_cast<std::size_t>(config_.device_arena)};
  KOLO_TRY(devices_.open(bootstrap, std::move(accelerator), std::move(reason), world(), window_,
                         of_device, {*transport_, config_.gpudirect}, log_, deadline()));
  start_up_.ended("devices");
  KOLO_TRY(learn_links(bootstrap, deadline()));
  start_up_.ended("links");
  return {};
}

// The other ranks hear the reason before they see this rank's links break. Those in init ask the
// rendezvous, which knows the first failure of all ranks; those whose init has ended are told it.
Error Runtime::give_up(Bootstrap& bootstrap, Error why) {
  why = bootstrap.give_up(std::move(why));
  driver_->with_token([&] { cycle_.give_up(why); });
  return why;
}

Status Runtime::learn_links(Bootstrap& bootstrap, Deadline deadline) {
  const bool keeps = config_.link_cache != 0 && world().size() > 1;
  if (keeps && world().rank() == 0)
    link_cache_ = {config_.cache_dir, topology_of(world(), transport_->description())};
  const ProbeLimits limits{groups_.world().communicator().abort(), deadline,
                           [this] { return cycle_.losses(); },
                           [&](Error why) { return give_up(bootstrap, std::move(why)); }};
  if (keeps) {
    const auto loaded = link_cache_.load();
    if (!loaded.ok()) log_.warning("{}; the links are measured again", loaded.error().message);
    const std::optional<LinkCosts> mine = loaded.ok() ? *loaded : std::nullopt;
    KOLO_ASSIGN(const auto known, share_costs(bootstrap, mine, deadline));
    if (known) {
      links_ = *known;
      return open_links(bootstrap, *transport_, world(), limits);
    }
  }
  KOLO_ASSIGN(links_, probe_links(bootstrap, *transport_, world(), host_device(), limits));
  if (const Status stored = link_cache_.store(links_); !stored.ok())
    log_.info("what links cost is not kept: {}", stored.error().message);
  return {};
}

Status Runtime::compare_clocks(Bootstrap& bootstrap, std::int64_t clock_of_0) {
  ClockOffset clock{.zero = clock_of_0};
  if (world().local_size() < world().size()) {
    const auto deadline = Deadline::after(std::chrono::seconds(config_.init_timeout_s));
    const bool same_clock = world().same_host(world().rank(), 0);
    KOLO_ASSIGN(clock, exchange_clock(bootstrap, same_clock, deadline, trace_now));
  }
  const RankInfo& info = world().info(world().rank());
  timeline_origin_ = {.rank = world().rank(),
                      .size = world().size(),
                      .host = info.hostname,
                      .pid = info.pid,
                      .zero = clock.zero,
                      .offset_ns = clock.offset,
                      .error_ns = clock.error};
  return {};
}

Status Runtime::start_timeline(const std::string& path) {
  const std::lock_guard lock(timeline_mutex_);
  const int rank = world().rank();
  if (path.empty()) {
    return KOLO_ERROR(kInvalidArgument, "rank {}: start_timeline() takes the path of a file", rank);
  }
  if (timeline_->on()) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {}: start_timeline('{}'): this rank keeps a timeline already, by an "
                      "earlier start_timeline() or KOLO_TIMELINE; call stop_timeline() before",
                      rank, path);
  }
  KOLO_ASSIGN(const auto opened, Timeline::open({.path = path,
                                                 .rank = rank,
                                                 .size = world().size(),
                                                 .steps = config_.timeline_steps != 0,
                                                 .asked_by = "start_timeline"}));
  opened->start(timeline_origin_);
  bool is_taken = false;
  driver_->with_token([&] {
    timeline_->swap(*opened);
    is_taken = true;
  });
  if (is_taken) return {};
  return KOLO_ERROR(kShutdown, "rank {}: start_timeline('{}'): kolo is shut down", rank, path);
}

Status Runtime::stop_timeline() {
  const std::lock_guard lock(timeline_mutex_);
  Timeline ended;  // its file is completed while others drive
  driver_->with_token([&] { timeline_->swap(ended); });
  if (!ended.on()) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {}: stop_timeline(): this rank keeps no timeline; call "
                      "start_timeline() before",
                      world().rank());
  }
  return ended.stop();
}

void Runtime::start_flight_recorder() {
  const World& world = this->world();
  const std::string& folder = config_.flight_recorder;
  if (world.size() == 1 || folder.empty() || folder == "0") return;
  // Equal on all ranks, and different for another job.
  std::uint64_t job = fnv1a("");
  for (int rank = 0; rank < world.size(); ++rank) {
    const RankInfo& other = world.info(rank);
    job = fnv1a(fmt::format("{} {} ", other.hostname, other.pid), job);
  }
  constexpr std::array<std::string_view, kSubmissionModeCount> kModes = {
      to_string(SubmissionMode::kNegotiated), to_string(SubmissionMode::kInOrder),
      to_string(SubmissionMode::kPointToPoint)};
  const RankInfo& info = world.info(world.rank());
  const FlightOptions options{.folder = folder,
                              .rank = world.rank(),
                              .size = world.size(),
                              .local_rank = world.local_rank(),
                              .host = info.hostname,
                              .pid = info.pid,
                              .job = fmt::format("{:016x}", job),
                              .init_method = config_.init_method,
                              .modes = kModes};
  driver_->with_token([&] {
    flight_recorder_.open(options, log_);
    if (!flight_recorder_.on()) return;
    for (const auto& group : groups_.all()) {
      const Communicator& set = group->communicator();
      if (group->is_member()) flight_recorder_.add_set(set.id(), set.size(), set.rank());
    }
  });
}

void Runtime::log_start(const Bootstrap& bootstrap) const {
  const World& world = this->world();
  const RankInfo& info = world.info(world.rank());
  log_.info("hostname={} LOCAL_RANK={} RANK={} WORLD_SIZE={} pid={}", info.hostname,
            world.local_rank(), world.rank(), world.size(), info.pid);
  if (world.rank() == 0) {
    log_.info("kolo {}: bootstrap {}, transport {}", KOLO_VERSION, bootstrap.description(),
              transport_->description());
    log_.info("init took {}", start_up_.text());
    if (!devices_.network().description.empty())
      log_.info("device memory to other hosts: {}", devices_.network().description);
    const auto log_link = [&](std::string_view where, const LinkCost& link) {
      if (link.latency_us > 0)
        log_.info("messages {} hosts: {:.2f} us and {:.2f} GB/s", where, link.latency_us,
                  1e-3 / std::max(link.us_per_byte, 1e-9));
    };
    log_link("inside", links_.inside);
    log_link("across", links_.across);
    if (const ExchangeLimits& limits = groups_.world().exchange().limits();
        !exchange_times_.empty())
      log_.info(
          "in-order all-reduces, as measured: one hop up to {} bytes, two hops up to {}; shared "
          "memory: two hops from {} to {}",
          limits.one_shot, limits.copied, limits.two_shot_in_arena, limits.in_arena);
  }
}

Runtime::~Runtime() { static_cast<void>(shut_down()); }

Result<std::shared_ptr<std::byte>> Runtime::allocate(std::size_t bytes) const {
  if (window_.arena() != nullptr) return window_.arena()->allocate(bytes);
  constexpr std::size_t kAlignment = 4096;
  auto* const memory = static_cast<std::byte*>(
      bytes > SIZE_MAX - kAlignment
          ? nullptr
          : std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment));
  if (memory == nullptr) {
    return KOLO_ERROR(kOutOfMemory, "rank {}: there are no {} bytes of memory", world().rank(),
                      bytes);
  }
  std::memset(memory, 0, bytes);
  return std::shared_ptr<std::byte>(memory, [](std::byte* begin) { std::free(begin); });
}

Result<std::shared_ptr<std::byte>> Runtime::allocate_if_shared(std::size_t bytes) const {
  if (window_.arena() == nullptr) return std::shared_ptr<std::byte>();
  return null_if_full(window_.arena()->allocate(bytes), "KOLO_ARENA", told_of_full_arena_);
}

Result<std::shared_ptr<std::byte>> Runtime::allocate_on_device(std::size_t bytes) const {
  if (devices_.arena() == nullptr) return std::shared_ptr<std::byte>();
  return null_if_full(devices_.arena()->allocate(*devices_.accelerator(), bytes),
                      "KOLO_DEVICE_ARENA", told_of_full_device_arena_);
}

Result<std::shared_ptr<std::byte>> Runtime::null_if_full(Result<std::shared_ptr<std::byte>> memory,
                                                         std::string_view variable,
                                                         std::atomic<bool>& told) const {
  if (memory.ok() || memory.error().code != ErrorCode::kOutOfMemory) return memory;
  if (!told.exchange(true))
    log_.info("{}; what does not fit is copied to where the other ranks reach it. {} can be larger",
              memory.error().message, variable);
  return std::shared_ptr<std::byte>();
}

namespace {

/// Which algorithm all-reduces take, from which number of bytes.
std::vector<AllreduceChoice> allreduces_of(const Resources& resources, const Policy& policy) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  std::vector<AllreduceChoice> rows;
  for (std::uint64_t bytes = 4; bytes <= kMost; bytes *= 2) {
    std::string algorithm(to_string(choose_allreduce(resources, policy, bytes)));
    if (!rows.empty() && rows.back().algorithm == algorithm) continue;
    rows.push_back({rows.empty() ? 0 : bytes, std::move(algorithm)});
  }
  return rows;
}

}  // namespace

std::size_t Runtime::arena_bytes_used() const {
  return window_.arena() == nullptr ? 0 : window_.arena()->bytes_used();
}

std::size_t Runtime::device_arena_bytes_used() const {
  return devices_.arena() == nullptr ? 0 : devices_.arena()->bytes_used();
}

RuntimeInfo Runtime::info() const {
  RuntimeInfo info;
  info.rendezvous = rendezvous_;
  info.shared_bytes = window_.slot_bytes() * HostWindow::kSlots;
  if (window_.arena() != nullptr) info.arena_bytes = window_.arena()->capacity();
  if (devices_.arena() != nullptr) info.device_arena_bytes = devices_.arena()->capacity();
  info.device_network = devices_.network().description;
  info.device_inside = devices_.inside();
  const ExchangeLimits& limits = groups_.world().exchange().limits();
  info.one_shot_bytes = limits.allreduces ? limits.one_shot : 0;
  info.two_shot_bytes = limits.allreduces ? limits.copied : 0;
  info.two_shot_shared_bytes = limits.allreduces ? limits.in_arena : 0;
  info.two_shot_shared_from = limits.allreduces ? limits.two_shot_in_arena : 0;
  info.two_rank_bytes = limits.two_rank;
  for (const ExchangeTimes& row : exchange_times_)
    info.allreduce_times.push_back(
        {row.bytes, row.in_arena, row.one_shot_us, row.two_shot_us, row.schedule_us});
  const auto info_of = [](const LinkCost& link) {
    const double rate = link.us_per_byte > 0 ? 1e-3 / link.us_per_byte : 0;
    return LinkInfo{
        .latency_us = link.latency_us, .gigabytes_per_second = rate, .crowd_us = link.crowd_us};
  };
  driver_->with_token([&] { info.transport = transport_->description(); });
  if (info.transport.empty()) info.transport = transport_->description();  // nobody drives any more
  info.inside = info_of(links_.inside);
  info.across = info_of(links_.across);
  const Group& world = groups_.world();
  const Resources resources = resources_of(world.services(), window_, devices_);
  const Policy policy = policy_of(links_, config_);
  info.allreduces = allreduces_of(resources, policy);
  for (RouteRow& row : route_table(resources, policy, devices_.accelerator() != nullptr))
    info.routes.push_back({.call = std::string(to_string(row.kind)),
                           .mode = std::string(to_string(row.mode)),
                           .on_device = row.on_device,
                           .shared = row.shared,
                           .from_bytes = row.from_bytes,
                           .carrier = std::string(to_string(row.carrier)),
                           .algorithm = std::move(row.algorithm)});
  return info;
}

void Runtime::abort(const std::string& reason) {
  driver_->with_token([&] {
    cycle_.abort(KOLO_ERROR(kAborted, "rank {} has given up: {}", world().rank(), reason));
  });
}

void Runtime::abort_process_set(std::uint32_t id, const std::string& reason) {
  driver_->with_token([&] {
    Group* const group = groups_.find(id);
    if (group == nullptr || !group->is_member()) return;
    cycle_.abort_set(*group, KOLO_ERROR(kAborted, "rank {} has aborted process set {}: {}",
                                        world().rank(), id, reason));
  });
}

bool Runtime::shut_down(std::chrono::steady_clock::time_point until) {
  const auto last = [this] {
    cycle_.shut_down();
    const Status written = timeline_->stop();
    if (!written.ok()) log_.warning("{}", written.error().message);
    flight_recorder_.close(failed());
  };
  return driver_->stop(last, until);
}

Status Runtime::failure() const {
  const Abort& abort = groups_.world().communicator().abort();
  const bool failed = abort.raised() && abort.error().code != ErrorCode::kShutdown;
  return failed ? abort.status() : Status();
}

Controller::Counters Runtime::negotiation_counters(std::uint32_t process_set) {
  Controller::Counters counters;
  driver_->with_token([&] {
    if (const Group* const group = groups_.find(process_set)) {
      counters = group->controller().counters();
    }
  });
  return counters;
}

}  // namespace kolo
