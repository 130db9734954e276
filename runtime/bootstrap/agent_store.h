// AgentStore: a client of the store that torchrun's agent serves at MASTER_PORT, over which rank 0
// tells the others where it listens. It speaks what the clients of PyTorch 2.15's TCPStore (either
// backend) were seen to send. Used by the thread that calls init.
#pragma once

#include "runtime/base/unique_handle.h"
#include "runtime/bootstrap/socket.h"

#include <kolo/error.h>

#include <string>
#include <string_view>
#include <utility>

namespace kolo {

class AgentStore {
 public:
  /// Connects and asks for a sign of life. kTimeout, kPeerLost or kMismatch if what is there
  /// answers in another way, or not.
  static Result<AgentStore> connect(const Endpoint& agent, Deadline deadline);

  /// Sets the value, or another one in its place; returns when the agent has it.
  Status set(std::string_view key, std::string_view value, Deadline deadline);
  /// The value, waiting for it. After kTimeout nothing can be asked any more.
  Result<std::string> get(std::string_view key, Deadline deadline);

  /// This host's address, as the agent sees it.
  const std::string& own_address() const { return own_address_; }

 private:
  AgentStore(UniqueDescriptor fd, std::string own_address)
      : fd_(std::move(fd)), own_address_(std::move(own_address)) {}
  Status await_key(std::string_view key, Deadline deadline);

  UniqueDescriptor fd_;
  std::string own_address_;
};

}  // namespace kolo
