// What running all-reduces teach of links: when it changes a choice, and from where on it counts.
#include "runtime/tuning/link_refresh.h"

#include "runtime/tuning/cost_switch.h"

#include <gtest/gtest.h>

#include <vector>

namespace kolo::test {
namespace {

constexpr LinkCost kLink{.latency_us = 10, .us_per_byte = 1e-3, .reduce_us_per_byte = 1e-4};

AllreducePolicy three_hosts() {
  return {.network = {.layout = HostLayout(std::vector<int>{0, 1, 2}), .across = kLink}};
}

/// A window of equal times, but for a straggler.
void note_all(LinkRefresh& refresh, Algorithm algorithm, std::uint64_t bytes, double us) {
  for (int i = 0; i < 32; ++i)
    refresh.note(algorithm, bytes, /*partial_width=*/1, i == 5 ? 100 * us : us);
}

TEST(LinkRefresh, TimesAsPricedChangeNothing) {
  LinkRefresh refresh(three_hosts());
  for (const std::uint64_t bytes : {std::uint64_t{4}, std::uint64_t{64} << 20}) {
    const double priced = price(Algorithm::kRing, three_hosts().network, bytes);
    note_all(refresh, Algorithm::kRing, bytes, priced);
    EXPECT_FALSE(refresh.take_due());
  }
  EXPECT_NEAR(refresh.costs().across.latency_us, 10, 1e-6);
  EXPECT_NEAR(refresh.costs().across.us_per_byte, 1e-3, 1e-9);
}

TEST(LinkRefresh, AClearDifferenceIsDueOnceAndWhatIsAdoptedIsNot) {
  LinkRefresh refresh(three_hosts());
  const double priced = price(Algorithm::kRecursiveDoubling, three_hosts().network, 4);
  std::optional<LinkCosts> due;
  for (int window = 0; window < 8; ++window) {
    note_all(refresh, Algorithm::kRecursiveDoubling, 4, 5 * priced);
    const auto now = refresh.take_due();
    EXPECT_FALSE(refresh.take_due()) << "twice";
    if (!now) continue;
    due = now;
    refresh.adopt(*now);
  }
  ASSERT_TRUE(due);
  EXPECT_NEAR(refresh.costs().across.latency_us, 50, 2);
  EXPECT_NEAR(refresh.costs().across.us_per_byte, 1e-3, 1e-9) << "a short message tells nothing";
  // Where the ring was taken, messages cost too much for it now.
  Network network = three_hosts().network;
  network.across = refresh.costs().across;
  EXPECT_EQ(cheapest(three_hosts().network, 16 << 10, false), Algorithm::kRing);
  EXPECT_NE(cheapest(network, 16 << 10, false), Algorithm::kRing);
}

TEST(LinkRefresh, WhatIsNotChosenByCostsIsLeftAlone) {
  EXPECT_TRUE(LinkRefresh::has_choice(three_hosts()));
  AllreducePolicy policy = three_hosts();
  policy.deterministic = true;
  EXPECT_FALSE(LinkRefresh::has_choice(policy));
  policy = three_hosts();
  policy.forced = Algorithm::kRing;
  EXPECT_FALSE(LinkRefresh::has_choice(policy));
  policy = three_hosts();
  policy.can_map = true;
  EXPECT_FALSE(LinkRefresh::has_choice(policy));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(CostSwitch, NoRankBeginsAnOperationBeforeItIsKnownWhichCostsCountForIt) {
  const LinkCosts other{.across = {.latency_us = 99}};
  CostSwitch coordinator(three_hosts(), 3);
  CostSwitch near(three_hosts(), 3);
  CostSwitch ahead(three_hosts(), 3);
  const std::string proposal = coordinator.propose(other, 10);
  EXPECT_FALSE(coordinator.can_propose());
  EXPECT_FALSE(coordinator.settle(7)) << "nobody has answered";
  const auto of_near = near.hear(bytes_of(proposal), 4);
  const auto of_ahead = ahead.hear(bytes_of(proposal), 500);
  ASSERT_TRUE(of_near && of_ahead);
  EXPECT_TRUE(near.may_begin(4 + CostSwitch::kAhead - 1));
  EXPECT_FALSE(near.may_begin(4 + CostSwitch::kAhead));
  EXPECT_FALSE(coordinator.may_begin(10 + CostSwitch::kAhead));
  EXPECT_TRUE(coordinator.take_answer(2, bytes_of(*of_ahead)));
  EXPECT_FALSE(coordinator.settle(7)) << "one has not answered";
  EXPECT_FALSE(coordinator.take_answer(2, bytes_of(*of_near))) << "it has answered";
  EXPECT_TRUE(coordinator.take_answer(1, bytes_of(*of_near)));
  const auto settlement = coordinator.settle(7);
  ASSERT_TRUE(settlement);
  for (CostSwitch* const rank : {&near, &ahead})
    EXPECT_TRUE(rank->take_settlement(bytes_of(*settlement)));
  const std::uint64_t from = 500 + CostSwitch::kAhead;
  for (const CostSwitch* const rank : {&coordinator, &near, &ahead}) {
    EXPECT_TRUE(rank->may_begin(from));
    EXPECT_EQ(rank->of_ordered(from - 1).network.across.latency_us, 10);
    EXPECT_EQ(rank->of_ordered(from).network.across.latency_us, 99);
    EXPECT_EQ(rank->of_list(6).network.across.latency_us, 10);
    EXPECT_EQ(rank->of_list(7).network.across.latency_us, 99);
    EXPECT_EQ(rank->newest()->across.latency_us, 99);
  }
  EXPECT_TRUE(coordinator.can_propose());
}

TEST(CostSwitch, WhoHasLeftIsNotWaitedFor) {
  CostSwitch coordinator(three_hosts(), 3);
  CostSwitch other(three_hosts(), 3);
  const auto answer = other.hear(bytes_of(coordinator.propose({}, 10)), 4);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(coordinator.take_answer(1, bytes_of(*answer)));
  coordinator.rank_left(1, 9000);  // it has answered
  EXPECT_FALSE(coordinator.settle(0));
  coordinator.rank_left(2, 600);
  const auto settlement = coordinator.settle(0);
  ASSERT_TRUE(settlement);
  ASSERT_TRUE(other.take_settlement(bytes_of(*settlement)));
  EXPECT_EQ(&coordinator.of_ordered(600 + CostSwitch::kAhead - 1), &coordinator.of_ordered(0));
  EXPECT_NE(&coordinator.of_ordered(600 + CostSwitch::kAhead), &coordinator.of_ordered(0));
}

TEST(CostSwitch, AProposalOfARankThatHasLeftHoldsNothingUp) {
  CostSwitch coordinator(three_hosts(), 3);
  CostSwitch rank(three_hosts(), 3);
  ASSERT_TRUE(rank.hear(bytes_of(coordinator.propose({}, 0)), 5));
  EXPECT_FALSE(rank.may_begin(5 + CostSwitch::kAhead));
  rank.withdraw();
  EXPECT_TRUE(rank.may_begin(5 + CostSwitch::kAhead));
  EXPECT_FALSE(rank.newest());
}

TEST(CostSwitch, MalformedMessagesAreRefused) {
  CostSwitch rank(three_hosts(), 3);
  EXPECT_FALSE(rank.hear(bytes_of("short"), 0));
  EXPECT_FALSE(rank.take_settlement(bytes_of(std::string(16, '\0')))) << "without a proposal";
  EXPECT_FALSE(rank.take_answer(1, bytes_of(std::string(8, '\0')))) << "without a proposal";
  CostSwitch coordinator(three_hosts(), 3);
  ASSERT_TRUE(rank.hear(bytes_of(coordinator.propose({}, 0)), 5));
  EXPECT_FALSE(rank.take_settlement(bytes_of(std::string(16, '\0')))) << "an operation begun";
}

}  // namespace
}  // namespace kolo::test
