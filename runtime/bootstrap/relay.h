// Relay: how a long answer of the TCP store reaches many ranks. The store tells each rank its place
// in a tree, and sends the answer to the first rank alone; each rank passes it on to a few others.
// Used by the thread that calls init.
#pragma once

#include "runtime/bootstrap/socket.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace kolo {

/// From how many ranks on a rank offers to pass answers on.
inline constexpr int kRelayRanks = 256;
/// From how many bytes on, in all, the store has ranks pass on what it answers. It sends them
/// itself in about 25 ms.
inline constexpr std::size_t kRelayBytes = std::size_t{128} << 20;
/// To how many ranks a rank passes an answer on, at most.
inline constexpr std::size_t kRelayDegree = 4;

/// The place of a rank in the tree.
struct RelayPlace {
  int parent = 0;     ///< by which rank the answer comes
  Endpoint from;      ///< where that rank listens; port 0: the store itself sends the answer
  std::string token;  ///< proves that a rank belongs to this tree; random, kNonceSize bytes
  int children = 0;   ///< ranks that come for the answer
};

class Relay {
 public:
  /// Listens at a free port.
  static Result<Relay> open();
  std::uint16_t port() const { return listener_.port; }
  /// The body of the answer's frame, by the rank of `place`. kPeerLost or kTimeout, with that rank.
  static Result<std::string> fetch(const RelayPlace& place, Deadline deadline);
  /// Gives it to the children. One that does not come within some seconds has failed, and tells the
  /// store so.
  void pass_on(const RelayPlace& place, const std::string& body, Deadline deadline) const;

 private:
  explicit Relay(Listener listener) : listener_(std::move(listener)) {}

  Listener listener_;
};

}  // namespace kolo
