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

// The published text is "kolo 1 SECRET node1:4711". Connections prove to know SECRET and the user's
// secret, so that no other meeting's server passes for this one's.
constexpr std::string_view kMark = "kolo 1 ";
// Before what refuse_by_agent() publishes.
constexpr std::string_view kRefusal = "kolo 1 refused ";
constexpr std::size_t kSecretBytes = 16;
// How long to try a published address, perhaps an old one, before asking the agent again.
constexpr std::chrono::milliseconds kOneTry(250);
constexpr std::chrono::milliseconds kPause(20);
// kPatience: how long to retry while something other than this meeting's server answers, until rank
// 0 publishes another address. kSilence: how long to wait for an answer before asking the agent
// again, or for a place in place of a refusal, which may be of an earlier meeting.
constexpr std::chrono::seconds kPatience(30);
constexpr std::chrono::seconds kSilence(3);

struct MeetingPoint {
  Endpoint endpoint;
  std::string secret;
};

std::string to_text(const MeetingPoint& point) {
  return fmt::format("{}{} {}", kMark, point.secret, to_text(point.endpoint));
}

Result<MeetingPoint> parse_point(std::string_view text) {
  const auto space = text.rfind(' ');
  if (!text.starts_with(kMark) || space < kMark.size()) {
    return KOLO_ERROR(kMismatch,
                      "torchrun's store has something that is not kolo's, or another version's, at "
                      "kolo's key; take one kolo for all ranks");
  }
  MeetingPoint point;
  point.secret = text.substr(kMark.size(), space - kMark.size());
  KOLO_ASSIGN(point.endpoint, parse_endpoint(text.substr(space + 1)));
  return point;
}

/// Rank 0's part: starts the server and publishes its address.
Result<AgentMeeting> publish(AgentStore& agent, const Endpoint& master, const std::string& key,
                             const Member& me, const std::string& secret,
                             std::function<void(const std::string&)> warn, Deadline deadline) {
  MeetingPoint point;
  // On the agent's host its name; elsewhere the address from which this host reaches the agent.
  point.endpoint.host = is_loopback({agent.own_address(), 0}) ? master.host : agent.own_address();
  KOLO_ASSIGN(const std::string secret_bytes, random_bytes(kSecretBytes));
  point.secret = to_hex(secret_bytes);
  AgentMeeting meeting;
  KOLO_ASSIGN(meeting.server, TcpStoreServer::start({.endpoint = point.endpoint,
                                                     .size = me.size,
                                                     .size_by = "rank 0",
                                                     .secret = point.secret + secret,
                                                     .meeting = point.secret,
                                                     .warn = std::move(warn),
                                                     .keeps_listening = false}));
  point.endpoint.port = meeting.server->port();
  KOLO_TRY(agent.set(key, to_text(point), deadline));
  KOLO_ASSIGN(meeting.store, TcpStore::join(point.endpoint, me, point.secret + secret, deadline));
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
    if (text->starts_with(kRefusal)) {
      if (!patience) patience = Deadline::after(deadline.remaining(kSilence));
      if (patience->expired()) {
        return KOLO_ERROR(kInvalidArgument, "rank {} ({}): rank 0 {}", me.rank, me.who,
                          text->substr(kRefusal.size()));
      }
      pause_for(kOneTry, *patience);
      continue;
    }
    KOLO_ASSIGN(const MeetingPoint point, parse_point(*text));
    const auto slice = Deadline::after(deadline.remaining(kOneTry));
    auto connection = connect_to(point.endpoint, slice);
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
        TcpStore::join_over(*std::move(connection), point.endpoint,
                            {.me = me, .secret = point.secret + secret, .meeting = point.secret},
                            Deadline::after(deadline.remaining(kSilence)), is_the_meeting);
    AgentMeeting meeting;
    if (store.ok()) {
      meeting.store = *std::move(store);
      return meeting;
    }
    // A rank that its own meeting has refused gives up. It must not join the next meeting, which
    // rank 0 may have published by now. Anything else may be left from a former meeting: a server
    // that hangs up on ranks that are early for the next meeting, or a port that another program
    // has by now.
    const bool hung_up = store.error().code == ErrorCode::kShutdown;
    if (!hung_up && !patience) patience = Deadline::after(deadline.remaining(kPatience));
    if (is_the_meeting || deadline.expired() || (!hung_up && patience->expired()))
      return Error(std::move(store).error());
    pause_for(hung_up ? kPause : kOneTry, deadline);
  }
}

Status refuse_by_agent(AgentStore& agent, const std::string& key, const Error& why,
                       Deadline deadline) {
  return agent.set(key, std::string(kRefusal) + why.message, deadline);
}

}  // namespace kolo
