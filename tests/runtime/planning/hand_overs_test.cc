// How often the ranks of an all-reduce between hosts wait for each other. Where other programs use
// the cores, each such wait costs about a time slice, so their number decides how slow an operation
// gets there. It is counted in the schedules, without a clock: a rank does all that it can, then
// takes what the others have sent by then. A round of all ranks is one hand-over.
#include "runtime/base/rounding.h"
#include "runtime/planning/route_table.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace kolo::test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Sender, receiver and tag.
using Way = std::tuple<int, int, std::uint32_t>;

class Rounds {
 public:
  explicit Rounds(const std::vector<Schedule>& schedules) : schedules_(schedules) {
    for (const Schedule& schedule : schedules_) {
      Rank& rank = ranks_.emplace_back();
      rank.successors.resize(schedule.steps.size());
      for (StepId id = 0; id < schedule.steps.size(); ++id) {
        const auto dependencies = schedule.depends_on(schedule.steps[id]);
        rank.waits_for.push_back(dependencies.size());
        for (const StepId dependency : dependencies) rank.successors[dependency].push_back(id);
        if (dependencies.empty()) rank.ready.push_back(id);
      }
      left_ += schedule.steps.size();
    }
  }

  /// Until all steps are done; 0 if the ranks wait for ever.
  int count() {
    for (int rounds = 1;; ++rounds) {
      const std::size_t before = left_;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) run(rank);
      if (left_ == 0) return rounds;
      if (left_ == before) return 0;
      for (auto& [way, messages] : sent_) arrived_[way] += std::exchange(messages, 0);
    }
  }

 private:
  struct Rank {
    std::vector<std::size_t> waits_for;           ///< by step: unfinished dependencies
    std::vector<std::vector<StepId>> successors;  ///< by step
    std::deque<StepId> ready;
    std::vector<StepId> listening;  ///< receives and waits whose message has not come
  };

  void run(std::size_t index) {
    Rank& rank = ranks_[index];
    const auto own = static_cast<int>(index);
    rank.ready.insert(rank.ready.end(), rank.listening.begin(), rank.listening.end());
    rank.listening.clear();
    while (!rank.ready.empty()) {
      const StepId id = rank.ready.front();
      rank.ready.pop_front();
      const Step& step = schedules_[index].steps[id];
      if (step.kind == StepKind::kSend || step.kind == StepKind::kSignal) {
        ++sent_[{own, step.peer, step.tag}];
      } else if (step.kind == StepKind::kReceive || step.kind == StepKind::kWait) {
        int& messages = arrived_[{step.peer, own, step.tag}];
        if (messages == 0) {
          rank.listening.push_back(id);
          continue;
        }
        --messages;
      }
      --left_;
      for (const StepId next : rank.successors[id])
        if (--rank.waits_for[next] == 0) rank.ready.push_back(next);
    }
  }

  const std::vector<Schedule>& schedules_;
  std::vector<Rank> ranks_;
  std::map<Way, int> sent_;     ///< in this round
  std::map<Way, int> arrived_;  ///< before it
  std::size_t left_ = 0;
};

/// Hand-overs of an all-reduce between hosts of equally many ranks, as it is chosen at 1 Gbit/s.
int hand_overs(int hosts, int ranks_a_host, std::uint64_t bytes) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * ranks_a_host; ++rank) host_of.push_back(rank / ranks_a_host);
  Resources set{.size = hosts * ranks_a_host, .layout = HostLayout(host_of)};
  set.exchange = limits_without_segments(static_cast<std::size_t>(set.size), ExchangeUse::kByCost);
  set.slot_bytes = set.slot_bytes_over_hosts = 4 * kMiB;
  const Policy policy{
      .inside = {.latency_us = 1, .us_per_byte = 1e-4, .reduce_us_per_byte = 1e-4},
      .across = {.latency_us = 20, .us_per_byte = 8e-3, .reduce_us_per_byte = 1e-4}};
  const CallShape call =
      even_call(OperationKind::kAllreduce, SubmissionMode::kInOrder, false, bytes, set.size);
  std::vector<Schedule> schedules;
  for (set.rank = 0; set.rank < set.size; ++set.rank)
    schedules.push_back(make_schedule(route(call, set, policy).request));
  return Rounds(schedules).count() - 1;
}

// Both levels of a host and each round between hosts hand over once, there and back, however many
// blocks travel at once.
TEST(HandOvers, OfAnAllreduceBetweenHostsAreTwoAHostForWhatTravelsAtOnce) {
  constexpr std::uint64_t kAtOnce = 2 * kMiB;
  const std::vector<std::pair<int, int>> layouts = {{2, 1}, {4, 1}, {2, 2}, {2, 4}, {3, 2}, {4, 2}};
  for (const auto& [hosts, ranks_a_host] : layouts)
    for (std::uint64_t bytes = 4; bytes <= 16 * kMiB; bytes *= 4) {
      const int counted = hand_overs(hosts, ranks_a_host, bytes);
      const auto turns = static_cast<int>(ceil_div(bytes, kAtOnce));
      EXPECT_GT(counted, 0);
      EXPECT_LE(counted, 2 * hosts * turns)
          << hosts << " hosts of " << ranks_a_host << " ranks, " << bytes << " bytes";
    }
}

}  // namespace
}  // namespace kolo::test
