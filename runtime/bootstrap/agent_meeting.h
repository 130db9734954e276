// AgentMeeting: how ranks under torchrun meet. Rank 0 listens at a free port and publishes its
// address in the store of torchrun's agent, where the others read it. Used by the thread that calls
// init.
#pragma once

#include "runtime/bootstrap/agent_store.h"
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/tcp_store_server.h"

#include <functional>
#include <memory>
#include <string>

namespace kolo {

struct AgentMeeting {
  std::unique_ptr<TcpStoreServer> server;  ///< on rank 0
  std::unique_ptr<TcpStore> store;
};

/// Collective. `master` is the agent's address as this rank was told; rank 0 publishes under `key`.
/// Rank 0 creates a secret for this meeting. Connections prove to know that secret and the user's,
/// `secret`. kTimeout, naming the agent, if rank 0 publishes nothing or if nothing answers at the
/// published address; otherwise as TcpStore::join(). `warn`: see TcpStoreServer::Options.
Result<AgentMeeting> meet_by_agent(AgentStore& agent, const Endpoint& master,
                                   const std::string& key, const Member& me,
                                   const std::string& secret,
                                   std::function<void(const std::string&)> warn, Deadline deadline);
/// Rank 0 cannot meet: those who wait for it in meet_by_agent() get kInvalidArgument with `why`.
Status refuse_by_agent(AgentStore& agent, const std::string& key, const Error& why,
                       Deadline deadline);

}  // namespace kolo
