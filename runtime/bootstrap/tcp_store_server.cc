#include "runtime/bootstrap/tcp_store_server.h"

#include "runtime/base/check.h"
#include "runtime/base/open_files.h"
#include "runtime/base/own_thread.h"
#include "runtime/bootstrap/tcp_store_connection.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace kolo {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {
// How long a stopping server may take to send what is under way.
constexpr seconds kLinger(1);
// How long the reason of a rank that gives up waits for the end of another rank: a process that is
// killed may lose its links to the others before its connection to the server.
constexpr milliseconds kCulprit(200);
// How long a server without free descriptors waits before it accepts again.
constexpr milliseconds kBreath(100);
// How many strangers the server warns of.
constexpr std::size_t kMostWarnings = 8;
// Chunks read from one connection before the others have their turn.
constexpr int kChunksInTurn = 16;

/// The member that a hello claims to be; nothing if the hello is malformed.
std::optional<Member> member_of(const Fields& hello) {
  if (hello.size() != 6) return std::nullopt;
  const auto rank = parse_count(hello[2]);
  const auto size = parse_count(hello[3]);
  if (!rank || !size) return std::nullopt;
  return Member{*rank, *size, hello[4], hello[5]};
}

/// The ranks that have not contributed.
std::vector<std::size_t> missing_in(const Gathered& contributions) {
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < contributions.size(); ++rank)
    if (!contributions[rank]) missing.push_back(rank);
  return missing;
}

bool is(const Fields& request, std::string_view kind, std::size_t fields) {
  return request[0] == kind && request.size() == fields;
}

bool is_of_node(const Fields& request) {
  return request[0] == kNodeRequest || request[0] == kEndedRequest;
}

}  // namespace

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(Options options) {
  // Fail here: the server's thread could not report an error.
  if (const auto nonce = random_bytes(kNonceSize); !nonce.ok()) return nonce.error();
  make_room_for_files(static_cast<std::size_t>(std::max(0, options.size)) + kOtherDescriptors);
  KOLO_ASSIGN(Listener listener, listen_at(options.endpoint, options.for_name, options.warn));
  try {
    return std::unique_ptr<TcpStoreServer>(
        new TcpStoreServer(std::move(options), std::move(listener)));
  } catch (const std::system_error& error) {
    return KOLO_ERROR(kOutOfMemory, "no thread for the store can be started: {} (ulimit -u)",
                      error.code().message());
  }
}

TcpStoreServer::TcpStoreServer(Options options, Listener listener)
    : options_(std::move(options)),
      port_(listener.port),
      listener_(std::move(listener.fd)),
      meetings_(options_.size, options_.size_by),
      lobby_(options_.least > 0 ? std::optional<Lobby>(options_.least) : std::nullopt),
      thread_(own_thread([this] { serve(); })) {}

TcpStoreServer::~TcpStoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  waker_.wake();
  thread_.join();
}

void TcpStoreServer::wait_until_left(Deadline deadline) {
  std::unique_lock lock(mutex_);
  while (!is_empty_ && !deadline.expired()) {
    changed_.wait_for(lock, deadline.remaining(seconds(60)));
  }
}

void TcpStoreServer::serve() {
  Deadline end = Deadline::never();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ && end.time() == Deadline::never().time()) end = Deadline::after(kLinger);
      if (stop_ && (end.expired() || !is_flushing())) return;
    }
    wait_for_events();
    if (!options_.keeps_listening && meetings_.has_anyone_met_in_the_first()) listener_.reset();
    {
      const std::lock_guard lock(mutex_);
      is_empty_ = meetings_.is_empty();
      has_each_node_ = static_cast<int>(nodes_come_.size()) >= options_.nodes;
      changed_.notify_all();
    }
    // After is_empty_ is up to date: once answered, rank 0 may call wait_until_left().
    for (Connection& c : connections_) flush(c);
    remove_closed();
  }
}

bool TcpStoreServer::is_flushing() const {
  return !nodes_.frames.empty() || std::any_of(connections_.begin(), connections_.end(),
                                               [](const Connection& c) { return !c.out.empty(); });
}

void TcpStoreServer::wait_for_events() {
  const bool accepts = accepts_again_.expired();
  std::vector<pollfd> entries = {{waker_.fd(), POLLIN, 0},
                                 {accepts ? listener_.get() : -1, POLLIN, 0}};
  auto timeout = std::chrono::duration_cast<Deadline::Clock::duration>(kLinger);
  if (!accepts) timeout = accepts_again_.remaining(timeout);
  for (const Connection& c : connections_) {
    const auto out = static_cast<short>(c.out.empty() ? 0 : POLLOUT);
    entries.push_back({c.fd.get(), static_cast<short>(POLLIN | out), 0});
    if (c.has_deadline()) timeout = c.deadline.remaining(timeout);
    if (c.gives_up) timeout = c.judged.remaining(timeout);
  }
  const auto left = std::chrono::ceil<milliseconds>(timeout);
  if (::poll(entries.data(), entries.size(), static_cast<int>(left.count())) < 0) return;
  if (entries[0].revents != 0) waker_.clear();
  auto entry = entries.begin() + 2;
  for (Connection& c : connections_) {
    const short events = (entry++)->revents;
    if ((events & POLLOUT) != 0) flush(c);
    if ((events & ~POLLOUT) != 0) receive(c);
  }
  answer_waiting();
  warn_of_missing();
  if (entries[1].revents != 0) accept_all();
}

void TcpStoreServer::accept_all() {
  for (;;) {
    UniqueDescriptor fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      // A waiting connection would be reported again and again.
      if (errno != EAGAIN && errno != ECONNABORTED) accepts_again_ = Deadline::after(kBreath);
      return;
    }
    auto nonce = random_bytes(kNonceSize);
    if (!nonce.ok()) continue;  // closes the connection; the client comes again
    Connection& connection =
        connections_.emplace_back(Connection{.fd = std::move(fd), .nonce = *std::move(nonce)});
    connection.send(std::string(kStoreHello) + connection.nonce);
  }
}

void TcpStoreServer::receive(Connection& connection) {
  std::array<char, 65536> chunk;
  for (int turn = 0; turn < kChunksInTurn; ++turn) {
    const auto got = ::recv(connection.fd.get(), chunk.data(), chunk.size(), 0);
    if (got > 0) {
      connection.in.append(chunk.data(), static_cast<std::size_t>(got));
      take_requests(connection);
      if (connection.closing || connection.closed) return;
    } else if (got == 0 || errno != EINTR) {
      connection.closed = got == 0 || errno != EAGAIN;
      return;
    }
  }
}

void TcpStoreServer::take_requests(Connection& connection) {
  while (!connection.closing) {
    auto frame = take_frame(connection.in, connection.is_known() ? kRequestLimit : kHelloLimit);
    if (!frame.ok()) {
      connection.closed = true;
      return;
    }
    if (!*frame) return;
    if (!connection.is_known()) {
      on_hello(connection, **frame);
    } else if (const Status status = handle(connection, **std::move(frame)); !status.ok()) {
      connection.send(to_frame(error_reply(status.error())));
    }
  }
}

void TcpStoreServer::on_hello(Connection& connection, const Fields& hello) {
  const auto refuse = [&](const Error& error, const std::string& proof = {}) {
    Fields reply = error_reply(error);
    if (!proof.empty()) reply.push_back(proof);
    connection.send(to_frame(reply));
    connection.closing = true;
  };
  const std::optional<Member> member = member_of(hello);
  if (!member) return refuse(KOLO_ERROR(kMismatch, "a hello that is not kolo's"));
  const auto proof = [&](const std::string& secret, std::string_view role) {
    return store_proof(secret, role, connection.nonce, hello[0], *member);
  };
  if (!equal_in_constant_time(hello[1], proof(options_.secret, "client"))) {
    warn_of(connection, member->rank);
    return refuse(KOLO_ERROR(kInvalidArgument,
                             "rank {} ({}): the store knows another secret; give all processes of "
                             "a job the same KOLO_SECRET, and each job an address of its own",
                             member->rank, member->who),
                  options_.meeting.empty() ? "" : proof(options_.meeting, "meeting"));
  }
  if (lobby_) {
    connection.process = member->rank;
  } else if (member->size == 0) {
    meetings_.note_gone(member->rank);
    connection.closing = true;
  } else {
    // The rank tries again, but this server ends with its meeting. The next server will hear it.
    connection.closed = !options_.keeps_listening && meetings_.has_left_the_first(member->rank);
    if (connection.closed) return;
    const auto meeting = meetings_.join(*member);
    if (!meeting.ok()) return refuse(meeting.error(), proof(options_.secret, "server"));
    connection.rank = member->rank;
    connection.meeting = *meeting;
  }
  if (!lobby_) nodes_come_.insert(member->rank / options_.slots);
  connection.send(to_frame({std::string(kOkReply), proof(options_.secret, "server")}));
}

// The client's data is only a claim, so no text from it goes any further.
void TcpStoreServer::warn_of(const Connection& connection, int claimed_rank) {
  const auto address = remote_address(connection.fd.get());
  std::string line =
      fmt::format("somebody at {}, as rank {}, came with another secret (KOLO_SECRET)",
                  address.ok() ? *address : "an address that is gone", claimed_rank);
  {
    const std::lock_guard lock(mutex_);
    if (warnings_.size() >= kMostWarnings ||
        std::find(warnings_.begin(), warnings_.end(), line) != warnings_.end())
      return;
    warnings_.push_back(line);
  }
  if (options_.warn) options_.warn(line);
}

std::string TcpStoreServer::warnings() const {
  const std::lock_guard lock(mutex_);
  return fmt::format("{}", fmt::join(warnings_, "; "));
}

void TcpStoreServer::warn_of_missing() {
  if (!options_.warn || has_warned_of_missing_) return;
  for (const Connection& c : connections_) {
    if (c.awaited_phase.empty() || c.closed || !c.silence.expired()) continue;
    const auto contributions = meetings_.table(c.meeting).contributions(c.awaited_phase);
    const std::vector<std::size_t> missing = missing_in(contributions);
    has_warned_of_missing_ = true;
    return options_.warn(
        fmt::format("rank{} {} of {} {} not come to port {} yet; waiting for {} s more "
                    "(KOLO_INIT_TIMEOUT)",
                    missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), contributions.size(),
                    missing.size() == 1 ? "has" : "have", port_,
                    std::chrono::ceil<seconds>(c.deadline.remaining()).count()));
  }
}

Status TcpStoreServer::handle(Connection& connection, Fields request) {
  if (const auto handled = handle_process(connection, request)) return *handled;
  if (!connection.rank) return KOLO_ERROR(kMismatch, "a request of a process that is in no world");
  StoreTable& table = meetings_.table(connection.meeting);
  if (request[0] == kLeaveRequest) {
    table.leave(*std::exchange(connection.rank, std::nullopt), true);
    connection.closing = true;
    return {};
  }
  if (is(request, kTellRequest, 3)) {
    // Has an error only if the meeting has failed.
    static_cast<void>(table.contribute(request[1], *connection.rank, std::move(request[2])));
    return {};
  }
  if (std::exchange(connection.is_told, false)) return {};
  if (request[0] == kGiveUpRequest) {
    request.front() = kErrorReply;
    connection.gives_up = parse_reply(std::move(request)).error();
    connection.judged = Deadline::after(kCulprit);
    return {};
  }
  if (connection.waits()) return KOLO_ERROR(kMismatch, "a request before the last was answered");
  const auto wait = [&](std::string& awaited, std::string& what, std::string_view time) -> Status {
    if (what.empty()) return KOLO_ERROR(kMismatch, "a request that is not kolo's");
    KOLO_TRY(connection.set_deadline(time));
    awaited = std::move(what);
    return {};
  };
  if (is(request, kSetRequest, 3)) {
    KOLO_TRY(table.set(request[1], std::move(request[2])));
    connection.send(to_frame({std::string(kOkReply)}));
    return {};
  }
  if (is(request, kGetRequest, 3)) return wait(connection.awaited_key, request[1], request[2]);
  if (is(request, kExchangeRequest, 4) || is(request, kExchangeRequest, 5)) {
    connection.relay_port = request.size() == 5 ? parse_count(request[4]).value_or(0) : 0;
    KOLO_TRY(table.contribute(request[1], *connection.rank, std::move(request[2])));
    KOLO_TRY(wait(connection.awaited_phase, request[1], request[3]));
    connection.silence = warns_after(connection.deadline);
    return {};
  }
  return KOLO_ERROR(kMismatch, "a request '{}' that this store does not know", request[0]);
}

std::optional<Status> TcpStoreServer::handle_process(Connection& connection,
                                                     const Fields& request) {
  if (!connection.process) return std::nullopt;
  if (is(request, kNewcomersRequest, 1)) {
    const std::lock_guard lock(mutex_);
    is_elastic_ = true;
    connection.send(to_frame({std::string(kOkReply), std::to_string(lobby_->newcomers())}));
    return Status();
  }
  if (is_of_node(request)) return handle_node(connection, request);
  if (is(request, kLifelineRequest, 1)) {
    connection.is_lifeline = options_.patience.count() > 0;
    return Status();
  }
  if (connection.rank) return std::nullopt;
  if (request[0] == kLeaveRequest) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(connection.is_lifeline, false)) lobby_->end(*connection.process, true);
    connection.closing = true;
    return Status();
  }
  if (connection.waits() || !is(request, kWorldRequest, 3)) return std::nullopt;
  KOLO_TRY(connection.set_deadline(request[2]));
  await_world(connection, request[1] == "new");
  return Status();
}

void TcpStoreServer::note_closed(Connection& connection) {
  if (connection.rank && !connection.gives_up) {
    const int rank = *std::exchange(connection.rank, std::nullopt);
    meetings_.table(connection.meeting).leave(rank, false);
  }
  if (connection.awaits_world) {
    const std::lock_guard lock(mutex_);
    lobby_->leave(*connection.process);
    connection.awaits_world = false;
  }
  if (std::exchange(connection.is_lifeline, false)) {
    const std::lock_guard lock(mutex_);
    lobby_->end(*connection.process, false);
  }
  if (connection.node) note_gone(connection);
}

std::vector<TcpStoreServer::Connection*> TcpStoreServer::giving_up() {
  std::vector<Connection*> all;
  for (Connection& c : connections_)
    if (c.gives_up && c.rank) all.push_back(&c);
  std::sort(all.begin(), all.end(), [](const Connection* a, const Connection* b) {
    return a->judged.time() < b->judged.time();
  });
  return all;
}

void TcpStoreServer::note_departures() {
  {
    const std::lock_guard lock(mutex_);
    for (const int rank : std::exchange(gone_, {})) meetings_.note_gone(rank);
  }
  // First note who has gone: others may wait for these ranks.
  for (Connection& c : connections_) {
    if (c.closed) note_closed(c);
    if (!c.is_known() && c.deadline.expired()) c.closed = true;
  }
  // Then those who lost another rank: the reason may be a rank that ended without a message.
  for (Connection* const c : giving_up()) {
    StoreTable& table = meetings_.table(c->meeting);
    if (!table.failure() && !c->judged.expired() && !c->closed) continue;
    table.give_up(*std::exchange(c->rank, std::nullopt), *std::exchange(c->gives_up, std::nullopt));
    c->send(to_frame(error_reply(*table.failure())));
    c->deadline = Deadline::after(kHelloTime);
    c->closing = true;
  }
}

void TcpStoreServer::answer_waiting() {
  note_departures();
  convene();
  send_to_nodes();
  relay_answers();
  for (Connection& c : connections_) {
    if (c.closed) continue;
    if (!c.waits()) {
      tell_of_failure(c);
    } else if (const auto reply = reply_to(c)) {
      c.send(reply);
      c.stop_waiting();
    }
  }
}

std::shared_ptr<const std::string> TcpStoreServer::reply_to(const Connection& c) {
  const auto frame = [](const Fields& fields) {
    return std::make_shared<const std::string>(to_frame(fields));
  };
  if (c.awaits_world) {
    const auto refusal = refuse_world(c);
    return refusal ? frame(*refusal) : nullptr;
  }
  const StoreTable& table = meetings_.table(c.meeting);
  const auto all_contributions = [&] {
    Fields fields = to_runs(table.contributions(c.awaited_phase));
    fields.insert(fields.begin(), std::string(kOkReply));
    return frame(fields);
  };
  const std::string* value = c.awaited_key.empty() ? nullptr : table.find(c.awaited_key);
  if (value != nullptr) return frame({std::string(kOkReply), *value});
  if (table.is_complete(c.awaited_phase)) {
    auto& reply = complete_[{c.meeting, c.awaited_phase}];
    if (!reply) reply = all_contributions();
    return reply;
  }
  if (table.failure()) return frame(error_reply(*table.failure()));
  if (!c.deadline.expired()) return nullptr;
  if (c.awaited_key.empty()) return all_contributions();
  return frame(error_reply(KOLO_ERROR(kTimeout, "nobody set '{}' in time", c.awaited_key)));
}

void TcpStoreServer::flush(Connection& connection) {
  while (!connection.out.empty() && !connection.closed) {
    const std::string& bytes = *connection.out.front();
    const auto sent = ::send(connection.fd.get(), bytes.data() + connection.sent,
                             bytes.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      connection.closed = errno != EAGAIN;
      return;
    }
    connection.sent += static_cast<std::size_t>(sent);
    if (connection.sent < bytes.size()) continue;
    connection.out.pop_front();
    connection.sent = 0;
  }
  if (connection.closing) connection.closed = true;
}

void TcpStoreServer::remove_closed() {
  for (auto c = connections_.begin(); c != connections_.end();) {
    // The next answer_waiting() must still handle a connection that flush() found broken.
    const bool noted = c->closing || !(c->rank || c->awaits_world || c->is_lifeline || c->node);
    c = c->closed && noted ? connections_.erase(c) : std::next(c);
  }
}

}  // namespace kolo
