// The loopback transport in the conformance suite, and its own features.
#include "transport/loopback/loopback_transport.h"

#include "tests/transport/transport_conformance.h"

#include <gmock/gmock.h>

namespace kolo::test {
namespace {

class LoopbackWorld final : public TransportWorld {
 public:
  explicit LoopbackWorld(int size) : hub_(size) {
    for (int rank = 0; rank < size; ++rank) transports_.emplace_back(hub_, rank);
  }
  Transport& at(int rank) override { return transports_[static_cast<std::size_t>(rank)]; }
  LoopbackHub& hub() { return hub_; }
  void last_rank_leaves() { transports_.pop_back(); }

 private:
  LoopbackHub hub_;
  std::deque<LoopbackTransport> transports_;
};

INSTANTIATE_TEST_SUITE_P(Loopback, TransportConformance,
                         testing::Values(TransportMaker{
                             "loopback",
                             [](int size) { return std::make_unique<LoopbackWorld>(size); }}),
                         [](const auto& maker) { return maker.param.name; });

class LoopbackTest : public testing::Test {
 protected:
  LoopbackTest() {
    const std::vector<Peer> peers{{"loopback:0", true}, {"loopback:1", true}};
    for (ConformanceRank* rank : {&zero_, &one_}) {
      EXPECT_TRUE(
          rank->transport.connect(rank->rank, peers, *rank, rank->abort, Deadline::never()).ok());
    }
  }

  LoopbackWorld world_{2};
  std::atomic<int> meeting_ = 0;
  ConformanceRank zero_{0, 2, world_.at(0), meeting_};
  ConformanceRank one_{1, 2, world_.at(1), meeting_};
};

TEST_F(LoopbackTest, AKilledRankIsReportedOnce) {
  world_.hub().kill(1);
  world_.hub().kill(1);
  while (zero_.transport.progress()) {
  }
  EXPECT_THAT(zero_.failed_peers, testing::ElementsAre(1));
  EXPECT_TRUE(zero_.post(1, "into the void").ok());
  EXPECT_THAT(zero_.send(1, tag(0), pattern(10, 1)).status().error().message,
              testing::HasSubstr("rank 1 was killed"));
  EXPECT_FALSE(one_.post(0, "from the dead").ok());
}

TEST_F(LoopbackTest, ARankThatLeavesRefusesWhatItNeverRead) {
  const auto large = pattern(100'000, 1);
  const Transfer& unread = zero_.send(1, tag(0), large);
  const Transfer& unmatched = zero_.send(1, tag(1), large);
  one_.transport.progress();
  const Transfer& in_inbox = zero_.send(1, tag(2), large);
  world_.last_rank_leaves();
  zero_.transport.progress();
  for (const Transfer* each : {&unread, &unmatched, &in_inbox}) {
    ASSERT_EQ(each->state(), Transfer::State::kFailed);
    EXPECT_EQ(each->status().error().code, ErrorCode::kPeerLost);
  }
  EXPECT_THAT(zero_.send(1, tag(3), large).status().error().message,
              testing::HasSubstr("rank 1 has left"));
}

TEST_F(LoopbackTest, TheLastWordsOfARankThatLeftAreReadThoughNothingReachesIt) {
  EXPECT_TRUE(one_.post(0, "goodbye").ok());
  world_.last_rank_leaves();
  EXPECT_TRUE(zero_.post(1, "are you there?").ok());
  zero_.transport.progress();
  EXPECT_THAT(zero_.messages, testing::ElementsAre(testing::Pair(1, "goodbye")));
  EXPECT_THAT(zero_.failed_peers, testing::IsEmpty());
}

TEST_F(LoopbackTest, AWithdrawnOfferFailsItsReceive) {
  const auto large = pattern(100'000, 1);
  std::vector<std::byte> in(large.size());
  zero_.send(1, tag(0), large);
  zero_.transport.fail_all({.code = ErrorCode::kAborted, .message = "aborted"});
  const Transfer& received = one_.receive(0, tag(0), in);
  one_.transport.progress();
  ASSERT_EQ(received.state(), Transfer::State::kFailed);
  EXPECT_EQ(received.status().error().code, ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace kolo::test
