// Members: the controllers of many ranks in one thread, with the messages between them, which
// arrive as a test wants. Header-only.
#pragma once

#include "runtime/negotiation/controller.h"
#include "tests/support/manual_transport.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test {

// Before and after whatever a rank between holds.
inline const Controller::Clock::time_point kEarly = {};
inline const Controller::Clock::time_point kLate =
    Controller::Clock::now() + std::chrono::hours(1000);

/// Messages that are under way, by sender and receiver.
using Links = std::map<std::pair<int, int>, std::deque<std::string>>;

class LinkTransport final : public ManualTransport {
 public:
  LinkTransport(int rank, Links& links) : rank_(rank), links_(links) {}
  Status post_message(int peer, std::span<const std::byte> message) override {
    links_[{rank_, peer}].emplace_back(reinterpret_cast<const char*>(message.data()),
                                       message.size());
    return {};
  }

 private:
  const int rank_;
  Links& links_;
};

struct Member {
  LinkTransport transport;
  Communicator communicator;
  ControlPlane control_plane;
  Controller controller;
  PlanLine line;
  std::uint64_t received = 0;

  Member(int rank, const std::vector<RankInfo>& infos, const Config& config, const Log& log,
         Links& links)
      : transport(rank, links),
        communicator(0, World(rank, infos)),
        control_plane(transport, communicator),
        controller(communicator, control_plane, config, log) {}
};

class Members {
 public:
  /// `plan_lock`: as KOLO_PLAN_LOCK. `nodes`: by rank, which map each other's windows.
  Members(const std::vector<int>& hosts, int degree, int plan_lock, const std::vector<int>& nodes) {
    config_.control_degree = degree;
    config_.plan_lock = plan_lock;
    std::vector<RankInfo> infos(hosts.size());
    for (std::size_t i = 0; i < hosts.size(); ++i) infos[i].host_id = std::to_string(hosts[i]);
    for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank)
      all_.push_back(std::make_unique<Member>(rank, infos, config_, log_, links_));
    const HostLayout layout(nodes);
    for (int rank = 0; rank < size(); ++rank) {
      PlanNeighbours neighbours{layout, {}};
      for (const int neighbour : layout.members(layout.host_of(rank)))
        neighbours.lines.push_back(&at(neighbour).line);
      controller(rank).open(std::move(neighbours));
    }
  }
  Members(const std::vector<int>& hosts, int degree, int plan_lock = 0)
      : Members(hosts, degree, plan_lock, hosts) {}

  int size() const { return static_cast<int>(all_.size()); }
  Member& at(int rank) { return *all_[static_cast<std::size_t>(rank)]; }
  Controller& controller(int rank) { return at(rank).controller; }
  const Links& links() const { return links_; }

  void submit(int rank, const std::string& name, const Signature& signature,
              std::uint64_t step = 0) {
    auto entry = std::make_unique<Entry>();
    entry->name = name;
    entry->signature = signature;
    entry->step = step;
    controller(rank).add(std::move(entry));
  }
  void announce(int rank) { expect(controller(rank).announce(kEarly, /*flush=*/true)); }

  /// Delivers the first message of a link.
  void deliver(std::pair<int, int> link) {
    auto node = links_.find(link);
    const std::string bytes = std::move(node->second.front());
    node->second.pop_front();
    if (node->second.empty()) links_.erase(node);
    Member& receiver = at(link.second);
    ++receiver.received;
    const auto message = ControlPlane::parse(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(message.has_value());
    if (message->kind == MessageKind::kDoorbell) return;  // the group's
    const Status status = receiver.controller.on_message(link.first, *message);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  /// Whether the rank had something to pass on or to decide.
  bool go_on(int rank, Controller::Clock::time_point now) {
    const bool has_followed = expect(controller(rank).follow_plan(now));
    return expect(rank == 0 ? controller(0).decide() : controller(rank).pass_on(now)) ||
           has_followed;
  }
  /// Delivers all there is, rank 0 deciding last.
  void settle() {
    for (bool moved = true; moved || !links_.empty();) {
      moved = !links_.empty();
      while (!links_.empty()) deliver(links_.begin()->first);
      for (int rank = 1; rank < size(); ++rank) moved |= go_on(rank, kEarly);
      if (!moved) moved = go_on(0, kEarly);
    }
  }

 private:
  static bool expect(const Result<bool>& result) {
    if (!result.ok()) ADD_FAILURE() << result.error().message;
    return result.ok() && *result;
  }

  Config config_;
  const Log log_{"off"};
  Links links_;
  std::vector<std::unique_ptr<Member>> all_;
};

}  // namespace kolo::test
