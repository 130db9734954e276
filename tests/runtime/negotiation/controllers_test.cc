// Controllers of many ranks in one thread: what they agree on through a ControlTree or by a locked
// plan, in whatever order messages arrive, and how many messages it takes.
#include "tests/runtime/negotiation/members.h"
#include "tests/support/dice.h"
#include "tests/support/sanitizers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kolo::test::controllers_test {
namespace {

std::vector<int> hosts_of(int ranks, int each) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / each);
  return hosts;
}

/// Messages of one agreement on 161 tensors that are all in the cache.
struct Messages {
  std::uint64_t to_rank_0;
  std::uint64_t from_rank_0;
  std::uint64_t most_of_others;  ///< most that another rank sends
};

Messages of_an_agreement(const std::vector<int>& hosts, int degree, int plan_lock = 0) {
  constexpr int kTensors = 161;
  const auto ranks = static_cast<int>(hosts.size());
  Members members(hosts, degree, plan_lock);
  Messages messages{};
  for (int step = 1; step <= 6; ++step) {
    std::vector<std::uint64_t> sent;
    for (int rank = 0; rank < ranks; ++rank)
      sent.push_back(members.controller(rank).counters().messages);
    const std::uint64_t received = members.at(0).received;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int tensor = 0; tensor < kTensors; ++tensor)
        members.submit(rank, "gradient." + std::to_string(tensor), {.shape = {7}},
                       static_cast<std::uint64_t>(step));
      members.announce(rank);
    }
    members.settle();
    messages = {.to_rank_0 = members.at(0).received - received};
    for (int rank = 0; rank < ranks; ++rank) {
      Controller& controller = members.controller(rank);
      std::vector<Agreed> agreed;
      EXPECT_TRUE(controller.take_agreed(agreed));
      EXPECT_EQ(agreed.size(), std::size_t{kTensors});
      EXPECT_FALSE(controller.take_agreed(agreed)) << "one list";
      const std::uint64_t its =
          controller.counters().messages - sent[static_cast<std::size_t>(rank)];
      auto& most = rank == 0 ? messages.from_rank_0 : messages.most_of_others;
      most = std::max(most, its);
    }
  }
  return messages;
}

TEST(Controllers, TakeAMessageEachToRankZeroAndBackIfTheTreeIsFlat) {
  const Messages messages = of_an_agreement(hosts_of(17, 8), 16);
  EXPECT_EQ(messages.to_rank_0, 16U);
  EXPECT_EQ(messages.from_rank_0, 16U);
  EXPECT_EQ(messages.most_of_others, 1U);
}

TEST(Controllers, TakeFewMessagesOfEachRankThroughATree) {
  for (const int degree : {1, 2, 5, 16}) {
    const Messages messages = of_an_agreement(hosts_of(64, 8), degree);
    const auto most = static_cast<std::uint64_t>(degree);
    EXPECT_LE(messages.to_rank_0, most);
    EXPECT_LE(messages.from_rank_0, most);
    EXPECT_LE(messages.most_of_others, most + 1) << "one up, and one down to each child";
  }
}

TEST(Controllers, TakeNoMessagesOnceTheStepsOfAHostRepeat) {
  for (const int degree : {2, 16}) {
    const Messages messages = of_an_agreement(hosts_of(17, 17), degree, /*plan_lock=*/3);
    EXPECT_EQ(messages.to_rank_0, 0U);
    EXPECT_EQ(messages.from_rank_0, 0U);
    EXPECT_EQ(messages.most_of_others, 0U);
  }
}

TEST(Controllers, TellOnlyOtherHostsOnceTheStepsOfHostsRepeat) {
  // Each host tells three others what it has, and four hosts tell what they have together.
  const Messages messages = of_an_agreement(hosts_of(64, 4), 16, /*plan_lock=*/3);
  EXPECT_EQ(messages.to_rank_0, 6U);
  EXPECT_EQ(messages.from_rank_0, 6U);
  EXPECT_EQ(messages.most_of_others, 6U);
}

// --- Three ranks in a row.

constexpr int kLast = 2;

class Chain : public testing::Test {
 protected:
  Chain() {
    for (int rank = 0; rank <= kLast; ++rank) submit(rank, "cached");
    members_.settle();
    for (int rank = 0; rank <= kLast; ++rank) EXPECT_EQ(taken(rank), 1U);
  }

  void submit(int rank, const std::string& name, OperationKind kind = OperationKind::kAllreduce) {
    members_.submit(rank, name, {.kind = kind});
    members_.announce(rank);
  }
  /// What the rank between has sent to rank 0 since the last call.
  std::vector<MessageKind> sent() {
    std::vector<MessageKind> kinds;
    while (members_.links().contains({1, 0})) {
      const std::string& bytes = members_.links().at({1, 0}).front();
      kinds.push_back(ControlPlane::parse(std::as_bytes(std::span(bytes)))->kind);
      members_.deliver({1, 0});
    }
    return kinds;
  }
  std::size_t taken(int rank) {
    std::vector<Agreed> agreed;
    return members_.controller(rank).take_agreed(agreed) ? agreed.size() : 0;
  }

  Members members_{{0, 0, 0}, 1};
};

TEST_F(Chain, HoldsBitsUntilAllHaveThemOrTimeHasPassed) {
  submit(1, "cached");
  members_.go_on(1, kEarly);
  EXPECT_THAT(sent(), testing::IsEmpty());
  EXPECT_TRUE(members_.controller(1).next_announcement().has_value());
  members_.go_on(1, kLate);
  EXPECT_THAT(sent(), testing::ElementsAre(MessageKind::kReadyOf));
  EXPECT_FALSE(members_.controller(1).next_announcement().has_value());
}

TEST_F(Chain, KeepsTheOrderOfARanksMessages) {
  submit(kLast, "cached");
  submit(kLast, "new");
  members_.deliver({kLast, 1});
  members_.deliver({kLast, 1});
  members_.go_on(1, kEarly);
  EXPECT_THAT(sent(), testing::ElementsAre(MessageKind::kReadyOf, MessageKind::kRequests));
  submit(0, "cached");
  submit(1, "cached");
  members_.settle();
  EXPECT_EQ(taken(kLast), 1U);

  submit(kLast, "newer");
  submit(kLast, "cached");
  members_.deliver({kLast, 1});
  members_.deliver({kLast, 1});
  members_.go_on(1, kLate);
  EXPECT_THAT(sent(), testing::ElementsAre(MessageKind::kRequests, MessageKind::kReadyOf));
}

TEST_F(Chain, LetsNoJoinOvertakeACallThatGoesToRankZeroDirectly) {
  const Signature set{
      .kind = OperationKind::kAddProcessSet, .root = kByItsRanks, .shape = {1, kLast}};
  for (const int rank : {1, kLast}) {
    members_.submit(rank, "set", set);
    members_.announce(rank);
  }
  submit(kLast, kJoinName, OperationKind::kJoin);
  members_.deliver({kLast, 1});
  members_.go_on(1, kEarly);
  EXPECT_THAT(sent(), testing::ElementsAre(MessageKind::kRequests, MessageKind::kRequests));
  members_.settle();
  for (int rank = 0; rank <= kLast; ++rank) {
    std::vector<Agreed> agreed;
    ASSERT_TRUE(members_.controller(rank).take_agreed(agreed));
    ASSERT_EQ(agreed.size(), 1U);
    EXPECT_FALSE(agreed[0].response->error) << agreed[0].response->error->message;
  }
}

TEST_F(Chain, WaitsForNobodyWhereARankHasJoined) {
  submit(kLast, kJoinName, OperationKind::kJoin);
  members_.settle();
  submit(0, "cached");
  submit(1, "cached");
  members_.settle();
  EXPECT_EQ(taken(0), 1U);
  EXPECT_EQ(taken(1), 1U);
  EXPECT_EQ(taken(kLast), 1U) << "zeros";
}

// --- Random programs.

/// Trains for some epochs, with different numbers of steps, and joins after each.
class Program {
 public:
  /// `plans`: most steps repeat, and plans are locked.
  Program(std::uint64_t seed, bool plans) : plans_(plans), dice_(seed) {
    const int ranks = number(2, 12);
    std::vector<int> hosts;
    const int last_host = plans ? number(0, 9) : 3;
    for (int rank = 0; rank < ranks; ++rank) hosts.push_back(number(0, last_host));
    members_ = std::make_unique<Members>(hosts, number(1, 3), plans ? number(1, 2) : 0);
    ranks_.resize(static_cast<std::size_t>(ranks));
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      const int fewest = plans ? number(0, 40) : 0;
      for (Rank& rank : ranks_) rank.steps.push_back(fewest + number(0, kSteps));
      pairs_.emplace_back();
      for (std::size_t i = 0; i < (static_cast<std::size_t>(fewest) + kSteps + 1) * kPairs; ++i)
        pairs_.back().emplace_back(std::minmax({number(0, ranks - 1), number(0, ranks - 1)}));
      changes_.push_back(fewest / 2 + number(0, 20));
    }
  }

  /// Lists that a rank took by locked plans.
  std::uint64_t planned() const { return members_->controller(0).counters().planned; }

  void run() {
    for (int turns = 0; !is_over(); ++turns) {
      ASSERT_LT(turns, 1'000'000) << "they wait for each other";
      if (testing::Test::HasFailure()) return;
      const Links& links = members_->links();
      if (!links.empty() && !dice_.one_in(4)) {
        auto link = links.begin();
        std::advance(link, number(0, static_cast<int>(links.size()) - 1));
        members_->deliver(link->first);
        continue;
      }
      const int rank = number(0, members_->size() - 1);
      submit(rank);
      if (dice_.one_in(2)) members_->announce(rank);
      members_->go_on(rank, dice_.one_in(plans_ ? 1000 : 10) ? kLate : kEarly);
      take(rank);
    }
    for (const Rank& rank : ranks_) EXPECT_EQ(rank.lists, ranks_.front().lists);
  }

 private:
  static constexpr int kEpochs = 3;
  static constexpr int kSteps = 6;
  static constexpr std::size_t kPairs = 4;  ///< in each step

  struct Rank {
    std::vector<int> steps;  ///< by epoch
    int epoch = 0;
    int step = 0;
    std::vector<std::pair<std::string, Signature>> to_submit;  ///< from the last one on
    std::set<std::string> waits_for;
    bool has_joined = false;
    std::string lists;
  };

  bool is_over() const {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [](const Rank& rank) { return rank.epoch == kEpochs; });
  }

  int number(int first, int last) {
    return first + static_cast<int>(dice_.below(last - first + 1));
  }

  void begin_step(int index) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    const auto epoch = static_cast<std::size_t>(rank.epoch);
    const auto steps_of = [&](int of) { return ranks_[static_cast<std::size_t>(of)].steps[epoch]; };
    std::vector<std::pair<std::string, Signature>>& calls = rank.to_submit;
    bool joins = rank.step == steps_of(index);
    for (int tensor = 0; tensor < 5 && !joins; ++tensor) {
      // Some change their shape at times, so they are announced in full.
      const int size = plans_ ? 1 + (rank.step >= changes_[epoch]) : 1 + rank.step * tensor / 8;
      calls.emplace_back("t" + std::to_string(tensor), Signature{.shape = {size}});
      rank.waits_for.insert(calls.back().first);
    }
    // Calls by two ranks, for which they do not wait.
    for (std::size_t i = 0; i < kPairs; ++i) {
      const auto [a, b] = pairs_[epoch][static_cast<std::size_t>(rank.step) * kPairs + i];
      if ((index != a && index != b) || std::min(steps_of(a), steps_of(b)) <= rank.step) continue;
      if (plans_ && rank.step % 25 != a) continue;
      Signature set{.kind = OperationKind::kAddProcessSet, .root = kByItsRanks, .shape = {a}};
      if (a != b) set.shape.push_back(b);
      calls.emplace_back(fmt::format("set {}.{}.{}", rank.epoch, rank.step, i), set);
    }
    dice_.shuffle(calls);
    // Some do not wait for their last tensors before they join.
    joins |= rank.step + 1 == steps_of(index) && dice_.one_in(2);
    if (joins) calls.insert(calls.begin(), {kJoinName, {.kind = OperationKind::kJoin}});
    rank.has_joined = joins;
    ++rank.step;
  }

  void submit(int index) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    if (rank.epoch == kEpochs) return;
    if (rank.to_submit.empty() && rank.waits_for.empty() && !rank.has_joined) begin_step(index);
    while (!rank.to_submit.empty() && !dice_.one_in(3)) {
      const auto [name, signature] = std::move(rank.to_submit.back());
      rank.to_submit.pop_back();
      members_->submit(index, name, signature,
                       static_cast<std::uint64_t>(rank.epoch * 100 + rank.step));
    }
  }

  void take(int index) {
    Rank& rank = ranks_[static_cast<std::size_t>(index)];
    std::vector<Agreed> agreed;
    while (members_->controller(index).take_agreed(agreed)) {
      for (const Agreed& one : agreed) {
        EXPECT_FALSE(one.response->error) << one.response->error->message;
        rank.lists += one.response->name + " ";
        if (!one.entry->absent) rank.waits_for.erase(one.response->name);
        if (one.response->name != kJoinName) continue;
        ++rank.epoch;
        rank.step = 0;
        rank.has_joined = false;
      }
      rank.lists += "; ";
    }
  }

  const bool plans_;
  Dice dice_;
  std::unique_ptr<Members> members_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<std::pair<int, int>>> pairs_;  ///< by epoch, of all steps: who adds a set
  std::vector<int> changes_;  ///< by epoch, of programs with plans: when shapes change
};

TEST(Controllers, AgreeInRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program(seed, /*plans=*/false).run();
  }
}

TEST(Controllers, AgreeInRandomProgramsByLockedPlans) {
  std::uint64_t planned = 0;
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 30 : 300) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program program(seed, /*plans=*/true);
    program.run();
    planned += program.planned();
  }
  EXPECT_GT(planned, kSanitized ? 500U : 5'000U);
}

}  // namespace
}  // namespace kolo::test::controllers_test
