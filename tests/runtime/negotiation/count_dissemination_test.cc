// Leaders of hosts that tell each other what they have counted: all learn the least of all, and
// when all have left, for every number of hosts and any order of messages.
#include "runtime/negotiation/count_dissemination.h"
#include "tests/runtime/negotiation/members.h"
#include "tests/support/dice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace kolo::test::count_dissemination_test {
namespace {

class Leaders {
 public:
  explicit Leaders(int count) {
    std::vector<RankInfo> infos(static_cast<std::size_t>(count));
    std::vector<int> ranks(infos.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    for (const int rank : ranks) {
      all_.push_back(std::make_unique<Leader>(rank, infos, links_));
      all_.back()->counts.open(HostLayout(ranks));
      all_.back()->counts.begin();
    }
  }

  CountDissemination& at(int rank) { return all_[static_cast<std::size_t>(rank)]->counts; }
  Links& links() { return links_; }
  void tell(int rank, PlanCount count) { expect(at(rank).tell(count)); }
  void deliver(std::pair<int, int> link) {
    auto node = links_.find(link);
    const std::string bytes = std::move(node->second.front());
    node->second.pop_front();
    if (node->second.empty()) links_.erase(node);
    const auto message = ControlPlane::parse(std::as_bytes(std::span(bytes)));
    expect(at(link.second).hear(link.first, message->payload));
  }

 private:
  struct Leader {
    LinkTransport transport;
    Communicator communicator;
    ControlPlane control_plane;
    CountDissemination counts;

    Leader(int rank, const std::vector<RankInfo>& infos, Links& links)
        : transport(rank, links),
          communicator(0, World(rank, infos)),
          control_plane(transport, communicator),
          counts(communicator, control_plane) {}
  };

  static void expect(const Status& status) {
    if (!status.ok()) ADD_FAILURE() << status.error().message;
  }

  Links links_;
  std::vector<std::unique_ptr<Leader>> all_;
};

TEST(CountDissemination, TellsAllTheLeastOfAll) {
  for (int count = 2; count <= 70; ++count) {
    Dice dice(static_cast<std::uint64_t>(count));
    Leaders leaders(count);
    constexpr std::uint32_t kPlans = 2;
    std::vector<std::uint32_t> plans(static_cast<std::size_t>(count), 1);
    std::vector<PlanCount> own(plans.size());
    // What a plan ends with, on all alike.
    std::vector<std::uint32_t> ends(kPlans + 1, UINT32_MAX);
    std::vector<std::uint32_t> left(kPlans + 1, 0);
    std::size_t over = 0;
    for (int turns = 0; over < plans.size(); ++turns) {
      ASSERT_LT(turns, 1'000'000) << count << " wait for each other";
      if (!leaders.links().empty() && !dice.one_in(3)) {
        auto link = leaders.links().begin();
        std::advance(link, dice.below(static_cast<int>(leaders.links().size())));
        leaders.deliver(link->first);
        continue;
      }
      const int rank = static_cast<int>(dice.below(count));
      const auto index = static_cast<std::size_t>(rank);
      CountDissemination& its = leaders.at(rank);
      if (plans[index] > kPlans) continue;
      const PlanCount elsewhere = its.elsewhere();
      if (elsewhere.all_left && own[index].all_left) {
        ASSERT_EQ(left[plans[index]], plans.size());
        ASSERT_EQ(std::min(elsewhere.lists, own[index].lists), ends[plans[index]]);
        own[index] = {};
        if (++plans[index] > kPlans) {
          ++over;
        } else {
          its.begin();
        }
      } else if (!own[index].all_left) {
        ASSERT_FALSE(elsewhere.all_left && left[plans[index]] + 1 < plans.size());
        const bool leaves = elsewhere.any_left || dice.one_in(200);
        // No further ahead than a plan allows.
        if (own[index].lists < elsewhere.lists + 3) ++own[index].lists;
        if (leaves) own[index].any_left = own[index].all_left = true;
        if (leaves) {
          ++left[plans[index]];
          ends[plans[index]] = std::min(ends[plans[index]], own[index].lists);
        }
        leaders.tell(rank, own[index]);
      }
    }
  }
}

TEST(CountDissemination, RefusesWhatNoLeaderSends) {
  Leaders leaders(3);
  leaders.tell(1, {.lists = 1});
  const auto& queue = leaders.links().begin()->second;
  const auto message = ControlPlane::parse(std::as_bytes(std::span(queue.front())));
  const int receiver = leaders.links().begin()->first.second;
  EXPECT_FALSE(leaders.at(receiver).hear(1, message->payload.first(8)).ok());
  EXPECT_FALSE(leaders.at(receiver).hear(receiver == 0 ? 2 : 0, message->payload).ok());
  EXPECT_TRUE(leaders.at(receiver).hear(1, message->payload).ok());
}

}  // namespace
}  // namespace kolo::test::count_dissemination_test
