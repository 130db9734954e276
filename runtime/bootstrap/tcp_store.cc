#include "runtime/bootstrap/tcp_store.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/pause.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace kolo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// After the deadline an answer may still be on its way: the server says who is missing.
constexpr seconds kGrace(5);
// For requests that the server answers at once.
constexpr seconds kAtOnce(30);
// For the answer that tells the meeting's first failure.
constexpr seconds kFirstFailure(5);
// kPatience: how long to try a server that hangs up. kPause: between two attempts.
constexpr seconds kPatience(10);
constexpr milliseconds kPause(20);
// How long a server may take to greet, until the caller may find out that it is another one.
constexpr milliseconds kGreetsWithin(1000);

std::string milliseconds_left(Deadline deadline) {
  return std::to_string(std::chrono::ceil<milliseconds>(deadline.remaining()).count());
}

Deadline with_grace(Deadline deadline) { return Deadline::after(deadline.remaining() + kGrace); }

template <class Value>
bool has_hung_up(const Result<Value>& result) {
  return !result.ok() && result.error().code == ErrorCode::kPeerLost;
}

std::string_view loopback_note(const Endpoint& server) {
  return is_loopback(server) ? "; that address is each host's own: if rank 0 is on another host, "
                               "give the name or address under which this one reaches it"
                             : "";
}

Error cannot_meet(const Error& why, const Endpoint& server, const Member& me) {
  const bool timed_out = why.code == ErrorCode::kTimeout;
  return Error{
      why.code,
      fmt::format("rank {} ({}) cannot meet the others: {}{}", me.rank, me.who, why.message,
                  timed_out ? fmt::format("; see whether rank 0 or the launcher runs there "
                                          "and the port is open{}",
                                          loopback_note(server))
                            : ""),
      why.file, why.line};
}

/// The server speaks first. Returns its nonce; kShutdown if it has hung up.
Result<std::string> receive_greeting(int fd, const Endpoint& server, const Introduction& mine,
                                     Deadline deadline) {
  // Something that is not a store may send anything, or wait for us to speak first. A store on a
  // busy host may be late, too, so silence is at first only a warning.
  const auto until = Deadline::at(std::min(deadline.time(), Deadline::after(kAtOnce).time()));
  if (mine.warn && !await(fd, POLLIN, warns_after(until))) {
    mine.warn(fmt::format(
        "what listens at {} says nothing yet; waiting for {} s more. Perhaps another program has "
        "this port, and rank 0 has failed for it: then choose another one (MASTER_PORT, or the one "
        "in KOLO_INIT_METHOD)",
        to_text(server), std::chrono::ceil<seconds>(until.remaining()).count()));
  }
  auto greeting = receive_exactly(fd, kStoreHello.size(), until);
  if (greeting.ok() && *greeting == kStoreHello) {
    greeting = receive_exactly(fd, kNonceSize, until);
    if (greeting.ok()) return greeting;
  }
  Error error = KOLO_ERROR(
      kMismatch,
      "rank {}: what answers at {} is no store of this kolo's version ({}); choose a port that "
      "nothing else uses (MASTER_PORT, or the one in KOLO_INIT_METHOD), and one kolo for all "
      "ranks",
      mine.me.rank, to_text(server), greeting.ok() ? "another greeting" : greeting.error().message);
  if (has_hung_up(greeting)) error.code = ErrorCode::kShutdown;
  return error;
}

}  // namespace

Result<std::unique_ptr<TcpStore>> TcpStore::join(
    const Endpoint& server, Member me, const std::string& secret, Deadline deadline,
    const std::function<void(const std::string&)>& warn, const std::function<bool()>& is_another) {
  std::optional<Deadline> patience;
  for (;;) {
    auto fd = connect_to(server, deadline, warn);
    if (!fd.ok()) return cannot_meet(fd.error(), server, me);
    if (is_another &&
        !await(fd->get(), POLLIN, Deadline::after(deadline.remaining(kGreetsWithin))) &&
        is_another()) {
      return KOLO_ERROR(kUnsupported, "the store at {} is not kolo's", to_text(server));
    }
    bool is_the_meeting = false;
    auto store = join_over(*std::move(fd), server, {.me = me, .secret = secret, .warn = warn},
                           deadline, is_the_meeting);
    if (store.ok() || store.error().code != ErrorCode::kShutdown) return store;
    // The server of a former meeting hangs up on ranks that are early for the next one.
    if (!patience) patience = Deadline::after(deadline.remaining(kPatience));
    if (patience->expired()) return store;
    pause_for(kPause, *patience);
  }
}

Result<std::unique_ptr<TcpStore>> TcpStore::join_over(UniqueDescriptor connection, Endpoint server,
                                                      const Introduction& introduction,
                                                      Deadline deadline, bool& is_the_meeting) {
  std::unique_ptr<TcpStore> store(
      new TcpStore(std::move(server), std::move(connection), introduction.warn));
  KOLO_TRY(store->introduce(introduction, deadline, is_the_meeting));
  return store;
}

Status TcpStore::introduce(const Introduction& introduction, Deadline deadline,
                           bool& is_the_meeting) {
  is_the_meeting = false;
  const Member& me = introduction.me;
  KOLO_ASSIGN(const std::string server_nonce,
              receive_greeting(fd_.get(), server_, introduction, deadline));
  KOLO_ASSIGN(const std::string nonce, random_bytes(kNonceSize));
  const auto proof = [&](const std::string& secret, std::string_view role) {
    return store_proof(secret, role, server_nonce, nonce, me);
  };
  const Fields hello = {nonce,
                        proof(introduction.secret, "client"),
                        std::to_string(me.rank),
                        std::to_string(me.size),
                        me.who,
                        me.job};
  // A refusal may wait there although the server has closed the connection.
  [[maybe_unused]] const Status sent =
      send_all(fd_.get(), to_frame(hello), Deadline::after(kAtOnce));
  // The other side has proved nothing yet, hence the small limit.
  const auto body = receive_body(fd_.get(), kHelloLimit, Deadline::after(kAtOnce));
  if (!body.ok()) {
    Error error = no_answer(body.error());
    if (has_hung_up(body)) error.code = ErrorCode::kShutdown;
    return error;
  }
  auto answer = parse_body(*body);
  if (!answer.ok()) return no_answer(answer.error());
  const auto ends_with = [&](const std::string& secret, std::string_view role) {
    return answer->size() > 1 && equal_in_constant_time(answer->back(), proof(secret, role));
  };
  const bool knows_secret = ends_with(introduction.secret, "server");
  is_the_meeting =
      knows_secret || (!introduction.meeting.empty() && ends_with(introduction.meeting, "meeting"));
  if (is_the_meeting) answer->pop_back();
  KOLO_ASSIGN(const Fields reply, parse_reply(*std::move(answer)));
  if (!knows_secret || !reply.empty()) {
    return KOLO_ERROR(kInvalidArgument,
                      "rank {}: the store at {} does not know this job's KOLO_SECRET", me.rank,
                      to_text(server_));
  }
  return {};
}

Result<TcpStore::World> TcpStore::next_world(bool is_new, Deadline deadline) {
  KOLO_ASSIGN(const Fields reply, request({std::string(kWorldRequest), is_new ? "new" : "next",
                                           milliseconds_left(deadline)},
                                          with_grace(deadline)));
  World world;
  const std::array<int*, 3> fields = {&world.generation, &world.rank, &world.size};
  bool is_whole = reply.size() == fields.size();
  for (std::size_t i = 0; is_whole && i < fields.size(); ++i) {
    const auto value = parse_count(reply[i]);
    is_whole = value.has_value();
    *fields[i] = value.value_or(0);
  }
  if (!is_whole) return KOLO_ERROR(kMismatch, "a reply of {} fields for a world", reply.size());
  return world;
}

void TcpStore::be_lifeline() {
  // If it does not arrive, the connection has ended, and so has the launcher.
  [[maybe_unused]] const Status sent =
      send_all(fd_.get(), to_frame({std::string(kLifelineRequest)}), Deadline::after(kAtOnce));
}

Result<UniqueDescriptor> TcpStore::join_as_node(int node, int slots, Deadline deadline) {
  KOLO_TRY(
      request({std::string(kNodeRequest), std::to_string(node), std::to_string(slots)}, deadline));
  end_if_silent(fd_.get());
  return std::move(fd_);
}

Result<int> TcpStore::newcomers(Deadline deadline) {
  KOLO_ASSIGN(const Fields reply, request({std::string(kNewcomersRequest)}, deadline));
  const auto count = reply.size() == 1 ? parse_count(reply[0]) : std::nullopt;
  if (!count) return KOLO_ERROR(kMismatch, "a reply of {} fields for newcomers", reply.size());
  return *count;
}

Status TcpStore::set(std::string_view key, std::string value) {
  KOLO_TRY(request({std::string(kSetRequest), std::string(key), std::move(value)},
                   Deadline::after(kAtOnce)));
  return {};
}

Result<std::string> TcpStore::get(std::string_view key, Deadline deadline) {
  KOLO_ASSIGN(Fields reply,
              request({std::string(kGetRequest), std::string(key), milliseconds_left(deadline)},
                      with_grace(deadline)));
  if (reply.size() != 1) return KOLO_ERROR(kMismatch, "a reply of {} fields", reply.size());
  return std::move(reply[0]);
}

Result<Gathered> TcpStore::exchange(std::string_view phase, int rank, int size, std::string value,
                                    Deadline deadline) {
  auto body = relay_ ? relay_->exchange(phase, value, deadline) : std::nullopt;
  if (body) {
    untold_ = to_frame({std::string(kTellRequest), std::string(phase), std::move(value)});
  } else {
    KOLO_ASSIGN(body, exchange_by_store({std::string(kExchangeRequest), std::string(phase),
                                         std::move(value), milliseconds_left(deadline)},
                                        rank, size, deadline));
  }
  KOLO_ASSIGN(Fields reply, parse_body(*body));
  KOLO_ASSIGN(const Fields runs, parse_reply(std::move(reply)));
  return from_runs(runs, static_cast<std::size_t>(size));
}

Result<std::string> TcpStore::exchange_by_store(Fields request, int rank, int size,
                                                Deadline deadline) {
  const Fields again = request;
  if (size >= kRelayRanks && !relay_) {
    KOLO_ASSIGN(relay_, Relay::open());
    request.push_back(std::to_string(relay_->port()));
  }
  KOLO_ASSIGN(std::string body, ask_for_body(request, with_grace(deadline)));
  KOLO_ASSIGN(const Fields reply, parse_body(body));
  if (reply[0] != kRelayReply) return body;
  KOLO_ASSIGN(const RelayPlace place, place_of(reply, rank, size));
  std::optional<std::string> answer;
  if (rank == 0) {
    KOLO_ASSIGN(answer, receive_body(fd_.get(), kReplyLimit, with_grace(deadline)));
  }
  relay_->link(place, fd_.get(), deadline);
  answer = relay_->pass_down(std::move(answer), deadline);
  if (rank == 0 && !relay_->is_linked() && warn_)
    warn_(
        "ranks do not reach each other by TCP within 30 s, so all exchanges of init go through the "
        "store, which takes longer; let the ranks' hosts connect to each other at any port");
  if (answer) return *std::move(answer);
  return ask_for_body(again, with_grace(deadline));
}

Result<RelayPlace> TcpStore::place_of(const Fields& reply, int rank, int size) const {
  const auto port = reply.size() == 4 ? parse_count(reply[2]) : std::nullopt;
  if (!port || *port > UINT16_MAX)
    return KOLO_ERROR(kMismatch, "a reply that is no place among ranks");
  return RelayPlace{
      .rank = rank,
      .size = size,
      .parent = {reply[1].empty() ? server_.host : reply[1], static_cast<std::uint16_t>(*port)},
      .token = reply[3]};
}

Error TcpStore::give_up(Error why) {
  if (!fd_) return why;
  Fields fields = error_reply(why);
  fields.front() = kGiveUpRequest;
  const auto reply = request(fields, Deadline::after(kFirstFailure));
  fd_.reset();
  // If the server cannot be reached, that says nothing about this failure.
  return reply.ok() || reply.error().code == ErrorCode::kTimeout ? why : reply.error();
}

void TcpStore::leave() {
  if (!fd_) return;
  // If the message does not arrive, no server is left that needs it.
  [[maybe_unused]] const Status sent =
      send_all(fd_.get(), std::exchange(untold_, {}) + to_frame({std::string(kLeaveRequest)}),
               Deadline::after(seconds(1)));
  fd_.reset();
}

void TcpStore::fail(Deadline deadline) {
  if (!fd_) return;
  // The server closes its end, too, once it has told the others.
  ::shutdown(fd_.get(), SHUT_WR);
  [[maybe_unused]] const auto end = receive_exactly(fd_.get(), 1, deadline);
  fd_.reset();
}

Result<Fields> TcpStore::request(const Fields& fields, Deadline deadline) {
  KOLO_ASSIGN(Fields reply, ask(fields, deadline));
  return parse_reply(std::move(reply));
}

Result<Fields> TcpStore::ask(const Fields& fields, Deadline deadline) {
  KOLO_ASSIGN(const std::string body, ask_for_body(fields, deadline));
  return parse_body(body);
}

Result<std::string> TcpStore::ask_for_body(const Fields& fields, Deadline deadline) {
  if (!fd_) return KOLO_ERROR(kShutdown, "this rank has left the store at {}", to_text(server_));
  Status done = send_all(fd_.get(), std::exchange(untold_, {}) + to_frame(fields), deadline);
  // A refusal may wait there although the server has closed the connection.
  if (done.ok() || done.error().code == ErrorCode::kPeerLost) {
    auto body = receive_body(fd_.get(), kReplyLimit, deadline);
    if (body.ok()) return body;
    done = body.error();
  }
  return no_answer(done.error());
}

Error TcpStore::no_answer(const Error& why) const {
  return Error{
      why.code,
      fmt::format("the store at {} did not answer: {}; see whether rank 0 or the launcher, "
                  "which serves it, has ended",
                  to_text(server_), why.message),
      why.file, why.line};
}

}  // namespace kolo
