// The part of Leader that has the kolo-run of other nodes start and end processes.
#include "tools/run/leader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace kolo::run {

using Event = TcpStoreServer::NodeEvent;

int Leader::node_of(const Place& place) const {
  if (!has_nodes()) return 0;
  const auto host = std::find_if(hosts_.begin(), hosts_.end(),
                                 [&](const Host& other) { return other.name == place.host; });
  return static_cast<int>(host - hosts_.begin());
}

bool Leader::waits() const {
  if (!is_over_ && roster_.waits()) return true;
  if (!has_nodes()) return false;
  const auto places = roster_.places();
  return std::any_of(places.begin(), places.end(),
                     [this](const Place& place) { return node_of(place) > 0; });
}

void Leader::end(int exit_code) { tell_all(quit_frame(exit_code, "node 0 ends the job")); }

void Leader::tell_all(const Fields& frame) {
  for (const int node : nodes_) lobby_.tell_node(node, frame);
}

bool Leader::start_elsewhere(const Place& place) {
  const int node = node_of(place);
  if (node > 0) lobby_.tell_node(node, start_frame(place));
  return node > 0;
}

bool Leader::pass_on(int process, std::string_view order) {
  for (const Place& place : roster_.places()) {
    if (place.process != process || node_of(place) == 0) continue;
    lobby_.tell_node(node_of(place), order_frame(order, process));
    return true;
  }
  return false;
}

void Leader::look_at_nodes(Orders& orders) {
  for (const Event& event : lobby_.take_node_events()) {
    has_changed_ = true;
    switch (event.kind) {
      case Event::Kind::kCame:
        take_node(event.node);
        break;
      case Event::Kind::kGone:
        lose_node(event, orders);
        break;
      case Event::Kind::kEnded: {
        const auto ended = parse_end(event.numbers.front(), event.told);
        const std::string host = "node " + std::to_string(event.node);
        std::string line;
        const bool goes_on = take_end(ended, host, event.was_in_world, line);
        if (goes_on && !line.empty()) orders.lines.push_back(std::move(line));
        if (goes_on || orders.gives_up) break;
        orders.gives_up = std::move(line);
        orders.exit_code = ended.exit_code;
        break;
      }
    }
  }
}

void Leader::take_node(int node) {
  nodes_.insert(node);
  if (is_over_) lobby_.tell_node(node, over_frame());
  if (gone_nodes_.erase(node) > 0) return set_nodes();
  for (const Place& place : roster_.places())
    if (node_of(place) == node) start_elsewhere(place);
}

void Leader::lose_node(const Event& event, Orders& orders) {
  nodes_.erase(event.node);
  bool has_lost = false;
  for (const Place& place : roster_.places()) {
    if (node_of(place) != event.node) continue;
    has_lost = true;
    lobby_.note_end(place.process, /*is_done=*/false);  // one that was started meanwhile, too
    // Its slots go with the node, so none is used up.
    static_cast<void>(roster_.note_end(place.process, Roster::End::kAsked, false, Clock::now()));
  }
  gone_nodes_.insert(event.node);
  set_nodes();
  if (!has_lost) return;
  std::string line = fmt::format(
      "node {} is gone: its kolo-run has ended, or has not answered for 30 s; lost processes: {}",
      event.node, fmt::join(event.numbers, ", "));
  if (event.was_in_world && !lobby_.is_elastic()) {
    orders.gives_up = line + ", and the program has not called kolo::elastic::run()";
    orders.exit_code = 1;
  } else {
    orders.lines.push_back(std::move(line));
  }
}

void Leader::set_nodes() {
  std::vector<Host> there;
  for (std::size_t node = 0; node < hosts_.size(); ++node)
    if (!gone_nodes_.contains(static_cast<int>(node))) there.push_back(hosts_[node]);
  roster_.set_hosts(std::move(there));
  roster_.expect_hosts(!gone_nodes_.empty());
}

}  // namespace kolo::run
