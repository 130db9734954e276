// AgentStore: a client of the store that torchrun's agent serves at MASTER_PORT, where rank 0
// publishes its address. It sends what the clients of PyTorch 2.15's TCPStore (either backend) were
// seen to send. Used by the thread that calls init.
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
  /// Connects and pings the agent. kTimeout, kPeerLost or kMismatch if the agent does not answer,
  /// or answers in another way.
  static Result<AgentStore> connect(const Endpoint& agent, Deadline deadline);

  /// Sets or replaces the value; returns once the agent has it.
  Status set(std::string_view key, std::string_view value, Deadline deadline);
  /// Waits for the value and returns it. After kTimeout the connection cannot be used any more.
  Result<std::string> get(std::string_view key, Deadline deadline);

  /// This host's address on its connection to the agent.
  const std::string& own_address() const { return own_address_; }

 private:
  AgentStore(UniqueDescriptor fd, std::string own_address)
      : fd_(std::move(fd)), own_address_(std::move(own_address)) {}
  Status await_key(std::string_view key, Deadline deadline);

  UniqueDescriptor fd_;
  std::string own_address_;
};

}  // namespace kolo
