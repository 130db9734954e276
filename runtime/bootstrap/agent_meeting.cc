#include "runtime/bootstrap/agent_meeting.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/pause.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

namespace kolo {
namespace {

// "kolo 1 SECRET node1:4711": a secret of each meeting, with the user's behind it where there is
// one, so that no other meeting's server passes for this one's.
constexpr std::string_view kMark = "kolo 1 ";
constexpr std::size_t kSecretBytes = 16;
// A place that a former meeting has left is tried for so long before the agent is asked again.
constexpr std::chrono::milliseconds kOneTry(250);
constexpr std::chrono::milliseconds kPause(20);
// With what is not this meeting's server, for rank 0 to tell another place; and of that, with what
// says nothing, before the agent is asked again.
constexpr std::chrono::seconds kPatience(30);
constexpr std::chrono::seconds kSilence(3);

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
  KOLO_ASSIGN(const std::string secret_bytes, random_bytes(kSecretBytes));
  place.secret = to_hex(secret_bytes);
  AgentMeeting meeting;
  KOLO_ASSIGN(meeting.server, TcpStoreServer::start({.endpoint = place.endpoint,
                                                     .size = me.size,
                                                     .size_by = "rank 0",
                                                     .secret = place.secret + secret,
                                                     .meeting = place.secret,
                                                     .warn = std::move(warn),
                                                     .keeps_listening = false}));
  place.endpoint.port = meeting.server->port();
  KOLO_TRY(agent.set(key, to_text(place), deadline));
  KOLO_ASSIGN(meeting.store, TcpStore::join(place.endpoint, me, place.secret + secret, deadline));
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
  std::optional<Deadline> patience;
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
    bool is_the_meeting = false;
    auto store =
        TcpStore::join_over(*std::move(connection), place.endpoint,
                            {.me = me, .secret = place.secret + secret, .meeting = place.secret},
                            Deadline::after(deadline.remaining(kSilence)), is_the_meeting);
    AgentMeeting meeting;
    if (store.ok()) {
      meeting.store = *std::move(store);
      return meeting;
    }
    // Whom its meeting has refused does not go on to the next one, of which rank 0 may have told by
    // now. What else is there may be what a former meeting has left: a server that hangs up on
    // those who are early for the next one, or its port, which another program has by now.
    const bool hung_up = store.error().code == ErrorCode::kShutdown;
    if (!hung_up && !patience) patience = Deadline::after(deadline.remaining(kPatience));
    if (is_the_meeting || deadline.expired() || (!hung_up && patience->expired()))
      return Error(std::move(store).error());
    pause_for(hung_up ? kPause : kOneTry, deadline);
  }
}

}  // namespace kolo
