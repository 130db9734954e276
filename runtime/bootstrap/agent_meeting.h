// AgentMeeting: how ranks under torchrun meet. Rank 0 listens at a port that is free and publishes
// the place in the store of torchrun's agent; the others read it there. Used by the thread that
// calls init.
#pragma once

#include "runtime/bootstrap/agent_store.h"
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/tcp_store_server.h"

#include <functional>
#include <memory>
#include <string>

namespace kolo {

struct AgentMeeting {
  std::unique_ptr<TcpStoreServer> server;  ///< rank 0's
  std::unique_ptr<TcpStore> store;
};

/// Collective. `master` is the agent's place as this rank was told it, `key` where rank 0
/// publishes, with a secret that it makes for this meeting; connections prove to know that and the
/// user's, `secret`. kTimeout, naming the agent, if rank 0 publishes nothing, or nothing that
/// answers; else as TcpStore::join(). `warn`: as TcpStoreServer::Options has it.
Result<AgentMeeting> meet_by_agent(AgentStore& agent, const Endpoint& master,
                                   const std::string& key, const Member& me,
                                   const std::string& secret,
                                   std::function<void(const std::string&)> warn, Deadline deadline);

}  // namespace kolo
