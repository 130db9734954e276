// CheckedTransport: it passes the conformance suite around another transport, and finds every
// damaged message.
#include "transport/checked_transport.h"

#include "tests/support/faulty_transport.h"
#include "tests/transport/transport_conformance.h"
#include "transport/loopback/loopback_transport.h"

#include <gmock/gmock.h>

namespace kolo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CheckedWorld final : public TransportWorld {
 public:
  explicit CheckedWorld(int size, const FaultyTransport::Decide& decide = nullptr) : hub_(size) {
    for (int rank = 0; rank < size; ++rank)
      transports_.emplace_back(std::make_unique<FaultyTransport>(
          std::make_unique<LoopbackTransport>(hub_, rank), decide, 7));
  }
  CheckedTransport& at(int rank) override { return transports_[static_cast<std::size_t>(rank)]; }

 private:
  LoopbackHub hub_;
  std::deque<CheckedTransport> transports_;
};

INSTANTIATE_TEST_SUITE_P(Checked, TransportConformance,
                         testing::Values(TransportMaker{
                             .name = "checked",
                             .make = [](int size) { return std::make_unique<CheckedWorld>(size); },
                             .largest_message = Transport::kLargestMessage -
                                                CheckedTransport::kControlChecksum}),
                         [](const auto& maker) { return maker.param.name; });

class Listener final : public TransportListener, public TransferListener {
 public:
  std::vector<std::string> messages;
  std::vector<Error> failures;
  void on_message(int /*peer*/, std::span<const std::byte> message) override {
    messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
  }
  void on_peer_failed(int /*peer*/, const Error& error) override { failures.push_back(error); }
  void on_failed(const Error& error) override { failures.push_back(error); }
  void on_transfer_done(Transfer& /*transfer*/) override {}
};

class CheckedTransportTest : public testing::Test {
 protected:
  CheckedTransportTest() {
    const std::vector<Peer> peers{{"loopback:0", true}, {"loopback:1", true}};
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_TRUE(
          world_.at(rank).connect(rank, peers, listeners_[rank], abort_, Deadline::never()).ok());
  }
  /// Rank 1 receives what rank 0 sends; true if it came whole.
  Status sent(std::size_t size, Tag sent_as, Tag received_as) {
    const auto out = pattern(size, 1);
    std::vector<std::byte> in(size);
    Transfer send(listeners_[0], 0);
    Transfer receive(listeners_[1], 0);
    world_.at(1).receive(0, received_as, in, receive);
    world_.at(0).send(1, sent_as, out, send);
    while (receive.state() == Transfer::State::kPending) world_.at(1).progress();
    world_.at(0).progress();
    if (receive.status().ok()) {
      EXPECT_EQ(in, out);
    }
    return receive.status();
  }

  Fault next_ = Fault::kNone;
  CheckedWorld world_{2, [this](const FaultyCall&) { return next_; }};
  Listener listeners_[2];
  Abort abort_;
};

TEST_F(CheckedTransportTest, DamagedMessagesOfAllSizesNameBothRanksAndBothChecksums) {
  for (const std::size_t size : {1, 4, 8, 31, 32, 33, 1000, 8192, 8193, 100'000}) {
    SCOPED_TRACE(size);
    for (int i = 0; i < 20; ++i) {
      next_ = Fault::kNone;
      ASSERT_TRUE(sent(size, tag(3), tag(3)).ok());
      next_ = Fault::kDamage;
      const Status status = sent(size, tag(3), tag(3));
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, ErrorCode::kTransport);
      EXPECT_THAT(status.error().message,
                  AllOf(testing::ContainsRegex(
                            "rank 1: the message of [0-9]+ bytes .step 3 of operation 1. "
                            "from rank 0 is damaged: rank 0 sent it with checksum "
                            "[0-9a-f]{8}, but what came has [0-9a-f]{8}"),
                        HasSubstr(std::to_string(size) + " bytes"), HasSubstr("KOLO_WIRE_CHECK")));
    }
  }
}

TEST_F(CheckedTransportTest, AMessageThatCameBeforeItsReceiveIsChecked) {
  next_ = Fault::kDamage;
  for (const std::size_t size : {10, 20'000}) {
    const auto out = pattern(size, 1);
    std::vector<std::byte> in(size);
    Transfer send(listeners_[0], 0);
    Transfer receive(listeners_[1], 0);
    world_.at(0).send(1, tag(1), out, send);
    world_.at(1).progress();
    world_.at(1).receive(0, tag(1), in, receive);
    ASSERT_EQ(receive.state(), Transfer::State::kFailed);
    EXPECT_THAT(receive.status().error().message, HasSubstr("is damaged"));
    world_.at(0).progress();
  }
}

TEST_F(CheckedTransportTest, AMessageOfAnotherLengthStaysAMismatch) {
  const auto out = pattern(10, 1);
  std::vector<std::byte> in(11);
  Transfer send(listeners_[0], 0);
  Transfer receive(listeners_[1], 0);
  world_.at(1).receive(0, tag(1), in, receive);
  world_.at(0).send(1, tag(1), out, send);
  world_.at(1).progress();
  ASSERT_EQ(receive.state(), Transfer::State::kFailed);
  EXPECT_EQ(receive.status().error().code, ErrorCode::kMismatch);
  EXPECT_EQ(receive.status().error().message,
            "rank 1 expected 11 bytes from rank 0, which sent 10");
}

TEST_F(CheckedTransportTest, ADamagedControlMessageIsNotDeliveredAndEndsTheService) {
  const auto post = [&](std::string_view text) {
    EXPECT_TRUE(world_.at(0).post_message(1, std::as_bytes(std::span(text))).ok());
    world_.at(1).progress();
  };
  post("whole");
  post("");
  EXPECT_THAT(listeners_[1].messages, testing::ElementsAre("whole", ""));
  next_ = Fault::kDamage;
  for (const std::string_view text : {"x", "", "some text"}) {
    for (int i = 0; i < 20; ++i) {
      listeners_[1].failures.clear();
      post(text);
      ASSERT_EQ(listeners_[1].failures.size(), 1U);
      EXPECT_THAT(listeners_[1].failures[0].message,
                  AllOf(HasSubstr("rank 1: a control message of " + std::to_string(text.size()) +
                                  " bytes from rank 0 is damaged: rank 0 sent it with checksum "),
                        HasSubstr("but what came has ")));
    }
  }
  EXPECT_EQ(listeners_[1].messages.size(), 2U);
}

TEST_F(CheckedTransportTest, ReachesNoDeviceMemory) {
  std::vector<std::byte> memory(100);
  for (const auto& error : {world_.at(0).reach_device(memory).error(),
                            world_.at(0).register_memory(memory, MemoryType::kCuda).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, HasSubstr("KOLO_WIRE_CHECK=1"));
  }
}

}  // namespace
}  // namespace kolo::test
