// A connection of TcpStoreServer's. Private to the server; its thread.
#pragma once

#include "runtime/base/check.h"
#include "runtime/bootstrap/store_wire.h"
#include "runtime/bootstrap/tcp_store_server.h"

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kolo {

/// How long a stranger may stay silent.
inline constexpr std::chrono::seconds kHelloTime(20);

/// One connection, with at most one unanswered request.
struct TcpStoreServer::Connection {
  using Bytes = std::shared_ptr<const std::string>;

  UniqueDescriptor fd;
  std::string nonce;
  std::optional<int> rank = std::nullopt;  ///< after the hello; in an elastic job, in a world
  /// In an elastic job, after the hello: the process's number.
  std::optional<int> process = std::nullopt;
  std::optional<int> node = std::nullopt;  ///< whose launcher this is: see kNodeRequest
  bool awaits_world = false;               ///< see Lobby
  bool is_lifeline = false;                ///< the process ends with it: see Options::patience
  int meeting = 0;                         ///< the rank's meeting
  std::string in = {};
  std::deque<Bytes> out = {};
  std::size_t sent = 0;  ///< bytes of out.front()
  bool closing = false;  ///< close once all is sent
  bool closed = false;
  std::string awaited_key = {};    ///< a get waits for this key
  std::string awaited_phase = {};  ///< an exchange waits for this phase
  int relay_port = 0;              ///< the rank's Relay listens there; 0: it has none
  bool is_told = false;            ///< the meeting's failure was told in reply to the next request
  Deadline deadline = Deadline::after(kHelloTime);
  Deadline silence = Deadline::never();  ///< when to warn of a waiting exchange
  std::optional<Error> gives_up = {};    ///< its reason; waits for the first failure
  Deadline judged = Deadline::never();   ///< when its reason counts, if nobody has ended

  bool is_known() const { return rank || process; }
  bool waits() const { return !awaited_key.empty() || !awaited_phase.empty() || awaits_world; }
  /// Whether `deadline` applies.
  bool has_deadline() const { return waits() || !is_known(); }
  void send(Bytes bytes) { out.push_back(std::move(bytes)); }
  void send(std::string bytes) { send(std::make_shared<const std::string>(std::move(bytes))); }
  /// `time`: how long a request may wait, in milliseconds.
  Status set_deadline(std::string_view time) {
    const auto count = parse_count(time);
    if (!count) return KOLO_ERROR(kMismatch, "a request that is not kolo's");
    deadline = Deadline::after(std::chrono::milliseconds(*count));
    return {};
  }
  void stop_waiting() { awaited_key.clear(), awaited_phase.clear(), awaits_world = false; }
};

}  // namespace kolo
