#include "runtime/bootstrap/rendezvous.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/agent_meeting.h"
#include "runtime/bootstrap/file_store.h"
#include "runtime/bootstrap/launcher.h"
#include "runtime/bootstrap/mpi_bootstrap.h"
#include "runtime/bootstrap/pause.h"
#include "runtime/bootstrap/pmi_bootstrap.h"
#include "runtime/bootstrap/pmix_bootstrap.h"
#include "runtime/bootstrap/prefix_store.h"
#include "runtime/bootstrap/single_bootstrap.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/tcp_store_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace kolo {
namespace {

// How long torchrun's agent, which was there before the ranks, may take to answer.
constexpr std::chrono::seconds kAgentTime(10);

// How long the store of torch.distributed, which is there, may take to answer.
constexpr std::chrono::seconds kTorchTime(1);

// How long rank 0 may take to inform the process that has its port.
constexpr std::chrono::seconds kTimeToTell(1);
// Where a store of torch.distributed has the port at which the ranks were to meet.
constexpr const char* kKeyBesideTorch = "kolo/beside torch.distributed";
constexpr std::size_t kLongestJob = 256;
/// Between two attempts to join.
constexpr std::chrono::milliseconds kPause(50);

/// A meeting over a store, with the store's server if this is rank 0.
class StoreMeeting final : public Bootstrap {
 public:
  StoreMeeting(const RendezvousMethod& way, std::unique_ptr<TcpStoreServer> server,
               std::unique_ptr<Store> store, int generation = 0)
      : description_(to_text(way)),
        generation_(generation),
        server_(std::move(server)),
        store_(std::move(store)),
        exchange_(*store_, way.rank, way.size) {}

  std::string description() const override { return description_; }
  int rank() const override { return exchange_.rank(); }
  int size() const override { return exchange_.size(); }
  int generation() const override { return generation_; }
  Result<std::vector<std::string>> exchange(std::string_view phase, std::string blob,
                                            Deadline deadline) override {
    auto all = exchange_.exchange(phase, std::move(blob), deadline);
    const std::string warnings = server_ && !all.ok() ? server_->warnings() : std::string();
    if (warnings.empty()) return all;
    Error error = all.error();
    error.message += "; " + warnings;
    return error;
  }

  Error give_up(Error why) override {
    // Any other failure concerns this rank alone, or all ranks know it.
    const bool is_of_another = why.code == ErrorCode::kPeerLost ||
                               why.code == ErrorCode::kTransport || why.code == ErrorCode::kTimeout;
    return is_of_another && store_ ? store_->give_up(std::move(why)) : why;
  }

  void leave(bool met, Deadline deadline) override {
    if (met) store_->leave();
    store_.reset();
    if (!server_) return;
    const auto leave = Deadline::after(kLeaveTimeout);
    server_->wait_until_left(met ? deadline
                                 : Deadline::at(std::min(deadline.time(), leave.time())));
    server_.reset();
  }

 private:
  const std::string description_;
  const int generation_;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<Store> store_;
  StoreBootstrap exchange_;
};

Member describe(const RendezvousMethod& way, const std::string& secret) {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return {way.rank, way.size, fmt::format("pid {} on {}", ::getpid(), host.data()),
          secret.empty() ? way.job.substr(0, kLongestJob) : std::string()};
}

/// Tells the ranks that wait for this rank 0 in the store of torch.distributed that has its port,
/// if it is one; it is another job's.
void tell_in_torchs_store(const RendezvousMethod& way, const Error& why, Deadline deadline) {
  auto torch = AgentStore::connect(way.endpoint, deadline);
  if (!torch.ok()) return;
  // Otherwise the others wait until their deadline.
  [[maybe_unused]] const Status told = refuse_by_agent(*torch, kKeyBesideTorch, why, deadline);
}

/// Starts rank 0's server. If another rank 0 already listens there, tells it of this one. Its
/// meeting then fails, because its ranks may belong to two jobs.
Result<std::unique_ptr<TcpStoreServer>> serve(const RendezvousMethod& way,
                                              const MeetingParts& parts, Deadline deadline) {
  TcpStoreServer::Options options;
  options.endpoint = way.endpoint;
  options.size = way.size;
  options.size_by = "rank 0";
  options.secret = parts.secret;
  options.warn = parts.warn;
  options.for_name = deadline;
  options.keeps_listening = false;
  auto server = TcpStoreServer::start(std::move(options));
  if (server.ok()) return server;
  const auto soon = Deadline::after(deadline.remaining(kTimeToTell));
  auto there = TcpStore::join(way.endpoint, describe(way, parts.secret), parts.secret, soon);
  // This process joined as rank 0. It stays until the other rank 0 joins and the meeting fails.
  const Error answer = there.ok() ? (*there)->get("another rank 0", soon).error() : there.error();
  if (answer.code != ErrorCode::kInvalidArgument) {
    tell_in_torchs_store(way, server.error(), Deadline::after(deadline.remaining(kTorchTime)));
    return server;
  }
  Error error = std::move(server).error();
  error.message += fmt::format("; kolo's store there says: {}", answer.message);
  return error;
}

/// Whether this process itself listens at the port: torch.distributed does so on rank 0, until
/// nothing of the program keeps its store any more.
bool listens_itself(std::uint16_t port) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", failed)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_storage at = {};
    size = sizeof at;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0) continue;
    const auto its_port = at.ss_family == AF_INET6
                              ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                              : reinterpret_cast<const sockaddr_in&>(at).sin_port;
    if (ntohs(its_port) == port) return true;
  }
  return false;
}

/// With MeetingParts::outlasts_refusals, tries again while the store refuses this rank.
/// kUnsupported if the store there is torch.distributed's.
Result<std::unique_ptr<TcpStore>> join(const RendezvousMethod& way, const MeetingParts& parts,
                                       Deadline deadline) {
  const auto is_torchs = [&] {
    return AgentStore::connect(way.endpoint, Deadline::after(deadline.remaining(kTorchTime))).ok();
  };
  const auto attempt = [&] {
    return TcpStore::join(way.endpoint, describe(way, parts.secret), parts.secret, deadline,
                          parts.warn, way.rank == 0 ? nullptr : std::function<bool()>(is_torchs));
  };
  auto tcp = attempt();
  if (tcp.ok() || !parts.outlasts_refusals) return tcp;
  Error refusal = tcp.error();
  if (refusal.code != ErrorCode::kInvalidArgument) return tcp;
  while (!tcp.ok() && !deadline.expired()) {
    pause_for(kPause, deadline);
    tcp = attempt();
  }
  if (!tcp.ok()) return refusal;
  return tcp;
}

/// Over the store that the program's torch.distributed still serves where the ranks were to meet:
/// rank 0 listens elsewhere, and publishes the place there.
Result<AgentMeeting> meet_beside_torch(const RendezvousMethod& way, const MeetingParts& parts,
                                       Deadline deadline) {
  KOLO_ASSIGN(auto torch,
              AgentStore::connect(way.endpoint, Deadline::after(deadline.remaining(kTorchTime))));
  return meet_by_agent(torch, way.endpoint, kKeyBesideTorch, describe(way, parts.secret),
                       parts.secret, parts.warn, deadline);
}

Result<std::unique_ptr<Bootstrap>> meet_over_tcp(const RendezvousMethod& way,
                                                 const MeetingParts& parts, Deadline deadline) {
  const auto over = [&](std::unique_ptr<TcpStoreServer> server, std::unique_ptr<TcpStore> tcp) {
    return std::unique_ptr<Bootstrap>(
        std::make_unique<StoreMeeting>(way, std::move(server), std::move(tcp)));
  };
  if (way.agent) {
    auto agent = AgentStore::connect(*way.agent, Deadline::after(deadline.remaining(kAgentTime)));
    if (agent.ok()) {
      KOLO_ASSIGN(AgentMeeting meeting,
                  meet_by_agent(*agent, *way.agent, way.agent_key, describe(way, parts.secret),
                                parts.secret, parts.warn, deadline));
      return over(std::move(meeting.server), std::move(meeting.store));
    }
    if (parts.warn) {
      parts.warn(fmt::format(
          "rank {}: torchrun's agent at {} does not answer as expected ({}), so the ranks meet at "
          "the next port, {}, which must be free and open on that host",
          way.rank, to_text(*way.agent), agent.error().message, way.endpoint.port));
    }
  }
  std::unique_ptr<TcpStoreServer> server;
  if (way.rank == 0 && !way.launcher_serves) {
    if (listens_itself(way.endpoint.port)) {
      auto meeting = meet_beside_torch(way, parts, deadline);
      if (meeting.ok()) return over(std::move(meeting->server), std::move(meeting->store));
    }
    KOLO_ASSIGN(server, serve(way, parts, deadline));
  }
  auto tcp = join(way, parts, deadline);
  while (!tcp.ok() && tcp.error().code == ErrorCode::kUnsupported) {
    auto meeting = meet_beside_torch(way, parts, deadline);
    if (meeting.ok()) return over(std::move(meeting->server), std::move(meeting->store));
    const bool is_refused = meeting.error().code == ErrorCode::kInvalidArgument;
    if (is_refused || deadline.expired()) return std::move(meeting).error();
    tcp = join(way, parts, deadline);  // that store has ended, so rank 0 will listen there
  }
  if (!tcp.ok()) {
    // If no rank can meet, the others learn why before the server ends.
    if (server) server->wait_until_left(Deadline::after(deadline.remaining(kLeaveTimeout)));
    return std::move(tcp).error();
  }
  return over(std::move(server), *std::move(tcp));
}

Result<std::unique_ptr<Bootstrap>> meet_in_world(const RendezvousMethod& way,
                                                 const MeetingParts& parts, Deadline deadline) {
  // The launcher counts processes; a member's size says nothing here.
  RendezvousMethod mine = way;
  mine.size = way.rank + 1;
  KOLO_ASSIGN(auto store, TcpStore::join(way.endpoint, describe(mine, parts.secret), parts.secret,
                                         deadline, parts.warn));
  KOLO_ASSIGN(const TcpStore::World world, store->next_world(!parts.joins_next_world, deadline));
  if (world.generation == 0) {
    return std::unique_ptr<Bootstrap>(std::make_unique<SingleBootstrap>());
  }
  mine.rank = world.rank;
  mine.size = world.size;
  return std::unique_ptr<Bootstrap>(
      std::make_unique<StoreMeeting>(mine, nullptr, std::move(store), world.generation));
}

Result<std::unique_ptr<Bootstrap>> meet_in_lobby(const RendezvousMethod& way, StoreLobby& lobby,
                                                 bool joins_next_world, Deadline deadline) {
  KOLO_ASSIGN(const StoreLobby::World world, lobby.next_world(!joins_next_world, deadline));
  if (world.generation == 0) {
    return std::unique_ptr<Bootstrap>(std::make_unique<SingleBootstrap>());
  }
  RendezvousMethod mine = way;
  mine.rank = world.rank;
  mine.size = world.size;
  KOLO_ASSIGN(auto store, lobby.meeting(world, deadline));
  return std::unique_ptr<Bootstrap>(
      std::make_unique<StoreMeeting>(mine, nullptr, std::move(store), world.generation));
}

StoreLobby::Options lobby_options(const RendezvousMethod& way, const LobbyParts& parts) {
  return {.me = describe(way, parts.secret), .secret = parts.secret, .patience = parts.patience};
}

Result<std::unique_ptr<Bootstrap>> meet_in_file(const RendezvousMethod& way,
                                                const std::string& secret, Deadline deadline) {
  KOLO_ASSIGN(auto store, FileStore::join(way.path, describe(way, secret), secret, deadline));
  return std::unique_ptr<Bootstrap>(std::make_unique<StoreMeeting>(way, nullptr, std::move(store)));
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> meet(const RendezvousMethod& way, MeetingParts parts,
                                        const Environment& environment, Deadline deadline) {
  if (parts.lobby != nullptr)
    return meet_in_lobby(way, *parts.lobby, parts.joins_next_world, deadline);
  switch (way.meeting) {
    case Meeting::kSingle:
      return std::unique_ptr<Bootstrap>(std::make_unique<SingleBootstrap>());
    case Meeting::kTcp:
      return meet_over_tcp(way, parts, deadline);
    case Meeting::kElastic:
      return meet_in_world(way, parts, deadline);
    case Meeting::kFile:
      return meet_in_file(way, parts.secret, deadline);
    case Meeting::kStore:
      return std::unique_ptr<Bootstrap>(std::make_unique<StoreMeeting>(
          way, nullptr,
          std::make_unique<PrefixStore>(fmt::format("meeting {}", parts.number),
                                        std::move(parts.store))));
    case Meeting::kPmix: {
      KOLO_ASSIGN(auto pmix, make_pmix_bootstrap(parts.exchanges, deadline));
      KOLO_TRY(check_world_size(environment, pmix->size(), pmix->description()));
      return pmix;
    }
    case Meeting::kPmi: {
      KOLO_ASSIGN(auto pmi, make_pmi_bootstrap(environment, parts.exchanges, deadline));
      KOLO_TRY(check_world_size(environment, pmi->size(), pmi->description()));
      return pmi;
    }
    case Meeting::kMpi:
      break;
  }
  KOLO_ASSIGN(auto bootstrap, make_mpi_bootstrap(parts.mpi_communicator, deadline));
  // The user's communicator may be a part of the world.
  if (parts.mpi_communicator == nullptr) {
    KOLO_TRY(check_world_size(environment, bootstrap->size(), bootstrap->description()));
  }
  return bootstrap;
}

Result<std::unique_ptr<StoreLobby>> begin_lobby(const RendezvousMethod& way, LobbyParts parts) {
  StoreLobby::Options options = lobby_options(way, parts);
  if (way.meeting == Meeting::kStore) {
    auto log = std::make_unique<KeyLobbyLog>(std::shared_ptr<Store>(std::move(parts.store)));
    return StoreLobby::begin(std::move(log), std::move(options));
  }
  if (way.meeting != Meeting::kFile) {
    return KOLO_ERROR(kUnsupported, "{}", why_not_elastic(way));
  }
  for (;;) {
    KOLO_ASSIGN(auto log, FileLobbyLog::open(way.path));
    auto lobby = StoreLobby::begin(std::move(log), options);
    // The last process of a former job has just removed the file.
    if (lobby.ok() || lobby.error().code != ErrorCode::kShutdown) return lobby;
  }
}

Result<std::unique_ptr<StoreLobby>> find_lobby(const RendezvousMethod& way, LobbyParts parts) {
  StoreLobby::Options options = lobby_options(way, parts);
  if (way.meeting == Meeting::kStore) {
    auto log = std::make_unique<KeyLobbyLog>(std::shared_ptr<Store>(std::move(parts.store)));
    const std::string who = options.me.who;
    const auto first = log->first(way.rank, who);
    if (!first.ok() || *first == who) return std::unique_ptr<StoreLobby>();
    auto lobby = StoreLobby::find(std::move(log), std::move(options));
    if (!lobby.ok() || *lobby) return lobby;
    // What that process has set there would be taken for this job's.
    return KOLO_ERROR(kInvalidArgument,
                      "rank {} ({}): the store in which the ranks are to meet has a rank {} "
                      "already, {}: an earlier job has left it, or another job uses it. Give each "
                      "job a store of its own; remove the file that torch's file:// names, if "
                      "that job is over",
                      way.rank, who, way.rank, *first);
  }
  if (way.meeting != Meeting::kFile || !FileLobbyLog::is_beside(way.path)) {
    return std::unique_ptr<StoreLobby>();
  }
  KOLO_ASSIGN(auto log, FileLobbyLog::open(way.path));
  auto lobby = StoreLobby::find(std::move(log), std::move(options));
  // The last process of that job has just removed the file.
  if (!lobby.ok() && lobby.error().code == ErrorCode::kShutdown) {
    return std::unique_ptr<StoreLobby>();
  }
  return lobby;
}

std::string why_not_elastic(const RendezvousMethod& way) {
  constexpr std::string_view kHelp =
      "start them by kolo-run with --min-np, or let them meet in a file (KOLO_INIT_METHOD="
      "file:///path)";
  if (way.agent) {
    return "torchrun ends all ranks when one is lost, so nobody is left to go on; start them by "
           "kolo-run with --min-np";
  }
  switch (way.meeting) {
    case Meeting::kTcp:
      return fmt::format("{}; {}",
                         way.launcher_serves
                             ? "kolo-run was started without --min-np, so it makes no further world"
                             : "rank 0 serves the place where the ranks met, and only until they "
                               "have, so nothing is left that could make a further world",
                         kHelp);
    case Meeting::kStore:
      return fmt::format(
          "InitOptions::store has no set_once(), so it cannot decide who is in the next world; {}",
          kHelp);
    case Meeting::kSingle:
    case Meeting::kMpi:
    case Meeting::kPmix:
    case Meeting::kPmi:
    case Meeting::kFile:
    case Meeting::kElastic:
      break;
  }
  return fmt::format("what started the ranks makes no further world; {}", kHelp);
}

}  // namespace kolo
