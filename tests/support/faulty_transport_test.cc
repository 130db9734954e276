// The decorator itself: without faults and with delays it passes the conformance suite like the
// wrapped transport; drops and failures take effect.
#include "tests/support/faulty_transport.h"

#include "tests/transport/transport_conformance.h"
#include "transport/loopback/loopback_transport.h"

#include <gmock/gmock.h>

namespace kolo::test {
namespace {

class FaultyWorld final : public TransportWorld {
 public:
  FaultyWorld(int size, const FaultyTransport::Decide& decide) : hub_(size) {
    for (int rank = 0; rank < size; ++rank) {
      transports_.emplace_back(std::make_unique<LoopbackTransport>(hub_, rank), decide,
                               static_cast<unsigned>(rank) + 1);
    }
  }
  FaultyTransport& at(int rank) override { return transports_[static_cast<std::size_t>(rank)]; }

 private:
  LoopbackHub hub_;
  std::deque<FaultyTransport> transports_;
};

TransportMaker maker(const std::string& name, const FaultyTransport::Decide& decide) {
  return {.name = name,
          .make = [decide](int size) { return std::make_unique<FaultyWorld>(size, decide); }};
}

INSTANTIATE_TEST_SUITE_P(Faulty, TransportConformance,
                         testing::Values(maker("without_faults", nullptr),
                                         maker("every_third_delayed",
                                               [](const FaultyCall& call) {
                                                 return call.number % 3 == 1 ? Fault::kDelay
                                                                             : Fault::kNone;
                                               })),
                         [](const auto& made) { return made.param.name; });

class FaultyTransportTest : public testing::Test {
 protected:
  FaultyTransportTest() {
    EXPECT_TRUE(world_.at(0)
                    .connect(0, {{"loopback:0", true}, {"loopback:1", true}}, zero_, zero_.abort,
                             Deadline::never())
                    .ok());
  }
  Fault next_ = Fault::kNone;
  FaultyWorld world_{2, [this](const FaultyCall&) { return next_; }};
  std::atomic<int> meeting_ = 0;
  ConformanceRank zero_{0, 2, world_.at(0), meeting_};
  std::vector<std::byte> data_ = pattern(100, 1);
};

TEST_F(FaultyTransportTest, AFailedTransferNamesItself) {
  next_ = Fault::kFail;
  const Transfer& sent = zero_.send(1, tag(7, 9), data_);
  ASSERT_EQ(sent.state(), Transfer::State::kFailed);
  EXPECT_THAT(sent.status().error().message,
              testing::HasSubstr("send to rank 1 (step 7, operation 9)"));
  EXPECT_FALSE(zero_.post(1, "hello").ok());
}

TEST_F(FaultyTransportTest, ADroppedTransferWaitsForFailAll) {
  next_ = Fault::kDrop;
  const Transfer& sent = zero_.send(1, tag(7), data_);
  EXPECT_TRUE(zero_.post(1, "hello").ok());
  for (int i = 0; i < 100; ++i) zero_.transport.progress();
  EXPECT_EQ(sent.state(), Transfer::State::kPending);
  zero_.transport.fail_all({.code = ErrorCode::kAborted, .message = "aborted"});
  EXPECT_EQ(sent.status().error().message, "aborted");
}

TEST_F(FaultyTransportTest, ALostPeerIsReportedOnceAndRefused) {
  world_.at(0).lose(1);
  EXPECT_FALSE(zero_.transport.arm());
  zero_.transport.progress();
  zero_.transport.progress();
  EXPECT_THAT(zero_.failed_peers, testing::ElementsAre(1));
  EXPECT_EQ(zero_.send(1, tag(0), data_).state(), Transfer::State::kFailed);
}

}  // namespace
}  // namespace kolo::test
