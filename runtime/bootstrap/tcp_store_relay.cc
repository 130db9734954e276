// TcpStoreServer's part in linking the ranks of a large job: see Relay.
#include "runtime/bootstrap/relay.h"

#include "runtime/bootstrap/tcp_store_connection.h"
#include "runtime/bootstrap/tcp_store_server.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

void TcpStoreServer::tell_of_failure(Connection& c) {
  if (c.relay_port == 0 || !c.rank) return;
  const auto& failure = meetings_.table(c.meeting).failure();
  if (!failure) return;
  c.send(to_frame(error_reply(*failure)));
  c.relay_port = 0;
  c.is_told = true;
}

void TcpStoreServer::relay_answers() {
  std::map<std::pair<int, std::string>, std::vector<Connection*>> complete;
  for (Connection& c : connections_)
    if (c.relay_port != 0 && !c.awaited_phase.empty() && !c.closed &&
        meetings_.table(c.meeting).is_complete(c.awaited_phase))
      complete[{c.meeting, c.awaited_phase}].push_back(&c);
  for (auto& [exchange, ranks] : complete) {
    if (ranks.size() != static_cast<std::size_t>(meetings_.table(exchange.first).size())) continue;
    std::sort(ranks.begin(), ranks.end(),
              [](const Connection* a, const Connection* b) { return *a->rank < *b->rank; });
    relay(reply_to(*ranks.front()), ranks);
  }
}

void TcpStoreServer::relay(const std::shared_ptr<const std::string>& answer,
                           const std::vector<Connection*>& ranks) {
  const auto token = random_bytes(kNonceSize);
  if (!token.ok()) return;                        // each rank gets the answer from here
  std::vector<std::string> places(ranks.size());  // by rank
  const auto place = [&](const std::string& host, int port) {
    return to_frame({std::string(kRelayReply), host, std::to_string(port), *token});
  };
  places.front() = place("", 0);
  std::vector<RelayTree> trees = {{0, static_cast<int>(ranks.size())}};
  while (!trees.empty()) {
    const auto below = trees_below(trees.back());
    const Connection& root = *ranks[static_cast<std::size_t>(trees.back().first)];
    trees.pop_back();
    if (below.empty()) continue;
    const auto there = remote_address(root.fd.get());
    const auto here = local_address(root.fd.get());
    // Such an address means nothing on another host.
    if (!there.ok() || !here.ok() || there->find('%') != there->npos) return;
    const bool is_here = *there == *here || is_loopback({*there, 0});
    for (const RelayTree& tree : below)
      places[static_cast<std::size_t>(tree.first)] = place(is_here ? "" : *there, root.relay_port);
    trees.insert(trees.end(), below.begin(), below.end());
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank]->send(std::move(places[rank]));
    if (rank == 0) ranks[rank]->send(answer);
    ranks[rank]->stop_waiting();
  }
}

}  // namespace kolo
