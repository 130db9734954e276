#include "tools/run/follower.h"

#include "runtime/base/check.h"
#include "runtime/bootstrap/socket.h"
#include "runtime/bootstrap/tcp_store.h"
#include "tools/run/node_frames.h"
#include "tools/run/say.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>

namespace kolo::run {
namespace {

/// For a frame that the connection does not take at once.
constexpr std::chrono::seconds kSend(5);

}  // namespace

Result<UniqueDescriptor> join_node_0(const Plan& plan) {
  const Deadline deadline = Deadline::after(plan.time_to_meet);
  const Endpoint store = {plan.listen_host, static_cast<std::uint16_t>(plan.listen_port)};
  const Member me = {plan.node, plan.job.size,
                     fmt::format("kolo-run of node {} on {}", plan.node, this_host())};
  KOLO_ASSIGN(const auto joined, TcpStore::join(store, me, plan.job.secret, deadline,
                                                [](const std::string& line) { say(line); }));
  return joined->join_as_node(plan.node, static_cast<int>(plan.places.size()), deadline);
}

Elastic::Orders Follower::orders() {
  Orders orders;
  while (link_) {
    const auto got = receive_some(link_.get(), Deadline::after({}));
    if (got.ok()) {
      in_ += *got;
      continue;
    }
    if (got.error().code == ErrorCode::kTimeout) break;
    take_frames(orders);  // what node 0 has said before it ended
    break_off(orders, "node 0's kolo-run has ended, or has not answered for 30 s");
  }
  take_frames(orders);
  return orders;
}

void Follower::take_frames(Orders& orders) {
  for (;;) {
    const auto frame = take_frame(in_, kRequestLimit);
    if (frame.ok() && !*frame) return;
    const auto order = frame.ok() ? parse_order(**frame) : std::nullopt;
    if (!order) {
      in_.clear();
      return break_off(orders, "node 0's kolo-run is of another version");
    }
    const int process = order->place.process;
    if (order->kind == kStartOrder) {
      Place place = order->place;
      place.host = this_host();
      place.is_here = true;
      orders.start.push_back(std::move(place));
    } else if (order->kind == kEndOrder) {
      orders.end.push_back(process);
    } else if (order->kind == kKillOrder) {
      orders.kill.push_back(process);
    } else if (order->kind == kDismissOrder) {
      orders.dismiss.push_back(process);
    } else if (order->kind == kOverOrder) {
      is_over_ = true;
    } else if (!orders.gives_up) {
      orders.gives_up = order->why;
      orders.exit_code = order->exit_code;
    }
  }
}

void Follower::break_off(Orders& orders, const std::string& why) {
  link_.reset();
  // Without node 0 the ranks of this node are none of the next world's.
  if (is_over_ || orders.gives_up) return;
  orders.gives_up = why;
  orders.exit_code = 1;
}

bool Follower::note_end(const Process& process, Roster::End end, std::string& line) {
  const ProcessEnd ended = end_of(process, end);
  if (end != Roster::End::kDone && !is_over_) line = describe(ended, process.place.host);
  // Where it does not arrive, the connection has ended, and orders() says so.
  if (link_)
    static_cast<void>(send_all(link_.get(), to_frame(ended_frame(ended)), Deadline::after(kSend)));
  return true;
}

}  // namespace kolo::run
