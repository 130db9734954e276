// The part of TcpStoreServer that knows the launchers of other nodes: they tell of their processes'
// ends, and get what node 0's launcher decides.
#include "runtime/base/check.h"
#include "runtime/bootstrap/tcp_store_connection.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kolo {

std::vector<TcpStoreServer::NodeEvent> TcpStoreServer::take_node_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(nodes_.events, {});
}

void TcpStoreServer::tell_node(int node, Fields frame) {
  {
    const std::lock_guard lock(mutex_);
    nodes_.frames.emplace_back(node, std::move(frame));
  }
  waker_.wake();
}

Status TcpStoreServer::handle_node(Connection& connection, const Fields& request) {
  const auto number = request.size() > 2 ? parse_count(request[1]) : std::nullopt;
  if (!number) return KOLO_ERROR(kMismatch, "a request that is not kolo's");
  const std::lock_guard lock(mutex_);
  if (request[0] == kEndedRequest && connection.node) {
    NodeEvent event{.kind = NodeEvent::Kind::kEnded,
                    .node = *connection.node,
                    .numbers = {*number},
                    .was_in_world = lobby_->is_member(*number)};
    // The others need not wait for the launcher's thread.
    lobby_->end(*number, request[2] == "1");
    event.told.assign(request.begin() + 3, request.end());
    nodes_.events.push_back(std::move(event));
    return {};
  }
  const auto slots = parse_count(request[2]);
  if (request[0] != kNodeRequest || !slots || connection.node)
    return KOLO_ERROR(kMismatch, "a request that is not kolo's");
  if (Status fits = check_node(*number, *slots); !fits.ok()) {
    connection.closing = true;
    return fits;
  }
  connection.node = number;
  end_if_silent(connection.fd.get());
  connection.send(to_frame({std::string(kOkReply)}));
  nodes_.events.push_back({.kind = NodeEvent::Kind::kCame, .node = *number});
  return {};
}

Status TcpStoreServer::check_node(int number, int slots) const {
  const bool is_there = std::any_of(connections_.begin(), connections_.end(),
                                    [&](const Connection& other) { return other.node == number; });
  if (is_there) {
    return KOLO_ERROR(kInvalidArgument,
                      "a kolo-run of node {} is there already: give each another --node-rank; if "
                      "its host was lost, try again after 30 s",
                      number);
  }
  if (number > 0 && number < options_.nodes && slots == options_.slots) return {};
  return KOLO_ERROR(kMismatch,
                    "node {} has {} ranks, and node 0 is one of {} nodes with {} each: give all "
                    "the same --nnodes and --nproc-per-node",
                    number, slots, options_.nodes, options_.slots);
}

void TcpStoreServer::note_gone(Connection& connection) {
  const std::lock_guard lock(mutex_);
  NodeEvent event{.kind = NodeEvent::Kind::kGone,
                  .node = *std::exchange(connection.node, std::nullopt)};
  for (const auto& [process, node] : nodes_.processes) {
    if (node != event.node || !lobby_->is_living(process)) continue;
    event.numbers.push_back(process);
    event.was_in_world |= lobby_->is_member(process);
    lobby_->end(process, /*is_done=*/false);
  }
  nodes_.events.push_back(std::move(event));
}

void TcpStoreServer::send_to_nodes() {
  if (!lobby_) return;
  const std::lock_guard lock(mutex_);
  for (auto& [node, frame] : std::exchange(nodes_.frames, {})) {
    for (Connection& c : connections_)
      if (c.node == node && !c.closed) c.send(to_frame(frame));
  }
}

}  // namespace kolo
