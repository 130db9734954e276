#include "runtime/bootstrap/agent_meeting.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/pause.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

// "kolo 1 SECRET node1:4711"
constexpr std::string_view kMark = "kolo 1 ";
constexpr std::size_t kSecretBytes = 16;
// A place that a former meeting has left is tried for so long before the agent is asked again.
constexpr std::chrono::milliseconds kOneTry(250);
constexpr std::chrono::milliseconds kPause(20);

struct Place {
  Endpoint endpoint;
  std::string secret;
};

std::string to_text(const Place& place) {
  return fmt::format("{}{} {}", kMark, place.secret, to_text(place.endpoint));
}

Result<Place> parse_place(std::string_view text) {
  const auto space = text.rfind(' ');
  if (!text.starts_with(kMark) || space < kMark.size()) {
    return KOLO_ERROR(kMismatch,
                      "torchrun's store has something that is not kolo's, or another version's, at "
                      "kolo's key; take one kolo for all ranks");
  }
  Place place;
  place.secret = text.substr(kMark.size(), space - kMark.size());
  KOLO_ASSIGN(place.endpoint, parse_endpoint(text.substr(space + 1)));
  return place;
}

/// Rank 0's.
Result<AgentMeeting> publish(AgentStore& agent, const Endpoint& master, const std::string& key,
                             const Member& me, const std::string& secret,
                             std::function<void(const std::string&)> warn, Deadline deadline) {
  Place place;
  // On the agent's host, its name; elsewhere, what others reach as they reach the agent.
  place.endpoint.host = is_loopback({agent.own_address(), 0}) ? master.host : agent.own_address();
  place.secret = secret.empty() ? to_hex(random_bytes(kSecretBytes)) : std::string("given");
  const std::string& proof = secret.empty() ? place.secret : secret;
  AgentMeeting meeting;
  KOLO_ASSIGN(meeting.server, TcpStoreServer::start({.endpoint = place.endpoint,
                                                     .size = me.size,
                                                     .size_by = "rank 0",
                                                     .secret = proof,
                                                     .warn = std::move(warn),
                                                     .keeps_listening = false}));
  place.endpoint.port = meeting.server->port();
  KOLO_TRY(agent.set(key, to_text(place), deadline));
  KOLO_ASSIGN(meeting.store, TcpStore::join(place.endpoint, me, proof, deadline));
  return meeting;
}

Error nobody_published(const Error& why, const Endpoint& master, const Member& me) {
  if (why.code != ErrorCode::kTimeout) return why;
  return KOLO_ERROR(
      kTimeout,
      "rank {} ({}): rank 0 did not tell torchrun's store at {} where it listens; see "
      "whether rank 0 has started and calls init (KOLO_INIT_TIMEOUT)",
      me.rank, me.who, to_text(master));
}

}  // namespace

Result<AgentMeeting> meet_by_agent(AgentStore& agent, const Endpoint& master,
                                   const std::string& key, const Member& me,
                                   const std::string& secret,
                                   std::function<void(const std::string&)> warn,
                                   Deadline deadline) {
  if (me.rank == 0) return publish(agent, master, key, me, secret, std::move(warn), deadline);
  for (;;) {
    const auto text = agent.get(key, deadline);
    if (!text.ok()) return nobody_published(text.error(), master, me);
    KOLO_ASSIGN(const Place place, parse_place(*text));
    const auto slice = Deadline::after(deadline.remaining(kOneTry));
    auto connection = connect_to(place.endpoint, slice);
    if (!connection.ok()) {
      if (connection.error().code == ErrorCode::kTimeout && !deadline.expired()) continue;
      return KOLO_ERROR(
          kTimeout,
          "rank {} ({}): {}, where rank 0 listens by what it told torchrun's store at "
          "{}; see whether rank 0 still runs, and whether hosts reach each other's "
          "ports above 1023",
          me.rank, me.who, connection.error().message, to_text(master));
    }
    auto store = TcpStore::join_over(*std::move(connection), place.endpoint, me,
                                     secret.empty() ? place.secret : secret, deadline);
    AgentMeeting meeting;
    if (store.ok()) {
      meeting.store = *std::move(store);
      return meeting;
    }
    // The server of a former meeting hangs up on those who are early for the next one.
    if (store.error().code == ErrorCode::kShutdown && !deadline.expired()) {
      pause_for(kPause, deadline);
      continue;
    }
    // Another program may have the port of a former meeting, whose place is told no more by now.
    const auto now = agent.get(key, deadline);
    if (!now.ok() || *now == *text) return Error(std::move(store).error());
  }
}

}  // namespace kolo
