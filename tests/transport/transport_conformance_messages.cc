// Conformance: control messages, wake-ups, memory that peers map, flush.
#include "tests/transport/transport_conformance.h"

#include <gmock/gmock.h>

#include <poll.h>
#include <cstring>
#include <thread>

namespace kolo::test {
namespace {

TEST_P(TransportConformance, MessagesOfOnePeerArriveInOrder) {
  run(3, [](ConformanceRank& self) {
    constexpr std::size_t kSizes[] = {0, 1, 100, 9000, 70'000, 1024 * 1024};
    constexpr std::size_t kRounds = 20;
    for (std::size_t i = 0; i < kRounds; ++i) {
      for (int peer = 0; peer < self.size; ++peer) {
        // The text is destroyed as soon as post_message() has returned.
        std::string text(kSizes[i % std::size(kSizes)], static_cast<char>('a' + i));
        EXPECT_TRUE(self.post(peer, text).ok());
        std::fill(text.begin(), text.end(), '?');
      }
    }
    const std::size_t expected = kRounds * static_cast<std::size_t>(self.size);
    self.wait([&] { return self.messages.size() == expected; }, "all messages arrived");
    std::vector<std::size_t> next(static_cast<std::size_t>(self.size));
    for (const auto& [peer, text] : self.messages) {
      const std::size_t i = next[static_cast<std::size_t>(peer)]++;
      EXPECT_EQ(text, std::string(kSizes[i % std::size(kSizes)], static_cast<char>('a' + i)))
          << "rank " << self.rank << " from " << peer << " message " << i;
    }
  });
}

TEST_P(TransportConformance, APeerIsActiveOnceSomethingHasPassed) {
  run(3, [](ConformanceRank& self) {
    std::byte byte{};
    if (self.rank == 0) {
      EXPECT_THAT(self.transport.active_peers(), testing::IsEmpty());
      EXPECT_TRUE(self.post(1, "to 1").ok());
      EXPECT_TRUE(self.post(1, "to 1 again").ok());
      self.send(2, tag(0), {&byte, 1});
    } else if (self.rank == 1) {
      self.wait([&] { return self.messages.size() == 2; }, "both messages arrived");
    } else {
      self.receive(0, tag(0), {&byte, 1});
    }
    self.wait_for_all();
    const auto expected = self.rank == 0 ? std::vector{1, 2} : std::vector{0};
    EXPECT_EQ(self.transport.active_peers(), expected) << "rank " << self.rank;
    self.meet();
  });
}

TEST_P(TransportConformance, TheLongestMessageArrives) {
  run(2, [](ConformanceRank& self) {
    const std::string longest(GetParam().largest_message, 'x');
    EXPECT_TRUE(self.post(self.other(), longest).ok());
    EXPECT_TRUE(self.post(self.other(), "after it").ok());
    self.wait([&] { return self.messages.size() == 2; }, "both messages arrived");
    EXPECT_TRUE(self.messages[0].second == longest);
    EXPECT_EQ(self.messages[1].second, "after it");
    self.meet();
  });
}

TEST_P(TransportConformance, AMessageThatIsTooLongIsRefused) {
  run(1, [](ConformanceRank& self) {
    const Status status = self.post(0, std::string(GetParam().largest_message + 1, 'x'));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  });
}

// Blocks as the cycle does: progress, arm, poll. Counts wake-ups by the descriptor, because each
// poll is bounded and would find the message in the end anyway.
TEST_P(TransportConformance, TheDescriptorWakesASleeper) {
  constexpr int kRounds = 20;
  std::atomic<int> woken = 0;
  run(2, [&woken](ConformanceRank& self) {
    for (int round = 0; round < kRounds; ++round) {
      std::byte in{};
      const std::byte out{1};
      if ((self.rank + round) % 2 == 0) {
        self.wait([&] { return self.messages.size() == 1; }, "the peer was about to sleep");
        self.messages.clear();
        std::this_thread::sleep_for(
            std::chrono::milliseconds(2));  // so that the receiver mostly sleeps
        self.send(self.other(), tag(0, static_cast<std::uint64_t>(round)), {&out, 1});
        self.wait_for_all();
        continue;
      }
      Transfer& received =
          self.receive(self.other(), tag(0, static_cast<std::uint64_t>(round)), {&in, 1});
      EXPECT_TRUE(self.post(self.other(), "about to sleep").ok());
      const Deadline deadline = Deadline::after(std::chrono::seconds(10));
      while (received.state() == Transfer::State::kPending && !deadline.expired()) {
        if (self.transport.progress() || !self.transport.arm()) continue;
        pollfd descriptor{.fd = self.transport.event_fd(), .events = POLLIN, .revents = 0};
        const int ready = poll(&descriptor, 1, 100);
        while (self.transport.progress()) {
        }
        if (ready == 1 && received.state() != Transfer::State::kPending) ++woken;
      }
      EXPECT_EQ(received.state(), Transfer::State::kDone) << "round " << round;
    }
  });
  // Libraries miss a few wake-ups, and on a loaded machine the message may come before the sleep.
  EXPECT_GE(woken, kRounds / 4);
}

TEST_P(TransportConformance, ArmRefusesWhenSomethingIsThere) {
  run(1, [](ConformanceRank& self) {
    EXPECT_TRUE(self.post(0, "waiting").ok());
    EXPECT_FALSE(self.transport.arm());
    self.wait([&] { return self.messages.size() == 1; }, "the message came");
  });
}

TEST_P(TransportConformance, MemoryOfAnotherHostIsNotMapped) {
  if (GetParam().same_host) return;
  run(2, [](ConformanceRank& self) {
    const auto region = self.transport.allocate_mappable(100);
    ASSERT_TRUE(region.ok()) << region.error().message;
    const auto mapping = self.transport.map_peer(self.other(), (*region)->key());
    ASSERT_FALSE(mapping.ok());
    EXPECT_EQ(mapping.error().code, ErrorCode::kUnsupported);
  });
}

TEST_P(TransportConformance, APeerWritesIntoMappedMemory) {
  if (!GetParam().same_host) return;
  run(3, [](ConformanceRank& self) {
    constexpr std::size_t kSize = 300'000;
    auto region = self.transport.allocate_mappable(kSize);
    ASSERT_TRUE(region.ok()) << region.error().message;
    ASSERT_EQ((*region)->bytes().size(), kSize);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*region)->bytes().data()) % 64, 0U);
    std::memset((*region)->bytes().data(), 0, kSize);
    for (int peer = 0; peer < self.size; ++peer)
      EXPECT_TRUE(self.post(peer, (*region)->key()).ok());
    self.wait([&] { return self.messages.size() == 3; }, "all keys arrived");

    std::vector<std::unique_ptr<PeerMapping>> mappings;
    const std::size_t third = kSize / 3;
    const auto offset = third * static_cast<std::size_t>(self.rank);
    for (const auto& [peer, key] : self.messages) {
      auto mapping = self.transport.map_peer(peer, key);
      ASSERT_TRUE(mapping.ok()) << mapping.error().message;
      ASSERT_EQ((*mapping)->bytes().size(), kSize);
      const auto mine = pattern(third, static_cast<unsigned>(self.rank * 3 + peer));
      std::memcpy((*mapping)->bytes().data() + offset, mine.data(), third);
      mappings.push_back(*std::move(mapping));
    }
    self.meet();
    for (int peer = 0; peer < self.size; ++peer) {
      const auto theirs = pattern(third, static_cast<unsigned>(peer * 3 + self.rank));
      EXPECT_EQ(std::memcmp((*region)->bytes().data() + third * static_cast<std::size_t>(peer),
                            theirs.data(), third),
                0);
    }
    self.meet();
    mappings.clear();
    self.meet();  // a region is destroyed after its mappings
  });
}

TEST_P(TransportConformance, MemoryThatCannotBeHadIsAnError) {
  run(1, [](ConformanceRank& self) {
    const auto region = self.transport.allocate_mappable(std::size_t{1} << 50);
    ASSERT_FALSE(region.ok());
    EXPECT_EQ(region.error().code, ErrorCode::kOutOfMemory);
    EXPECT_THAT(region.error().message, testing::HasSubstr("1125899906842624"));
    EXPECT_FALSE(self.transport.map_peer(0, "no key").ok());
    EXPECT_TRUE(self.transport.allocate_mappable(0).ok());
  });
}

TEST_P(TransportConformance, RegisteredMemoryIsSentAndReceivedInto) {
  run(2, [](ConformanceRank& self) {
    auto out = pattern(1024 * 1024, 1);
    std::vector<std::byte> in(out.size());
    const auto sent = self.transport.register_memory(out, MemoryType::kHost);
    ASSERT_TRUE(sent.ok()) << sent.error().message;
    EXPECT_EQ((*sent)->bytes().data(), out.data());
    EXPECT_EQ((*sent)->type(), MemoryType::kHost);
    const auto received = self.transport.register_memory(in, MemoryType::kHost);
    ASSERT_TRUE(received.ok()) << received.error().message;
    self.receive(self.other(), tag(0), in, received->get());
    self.send(self.other(), tag(0), out, sent->get());
    self.wait_for_all();
    EXPECT_EQ(in, out);
    self.meet();
  });
}

TEST_P(TransportConformance, FlushEndsWhenAllIsSent) {
  run(2, [](ConformanceRank& self) {
    const auto out = pattern(1024 * 1024, 1);
    std::vector<std::byte> in(out.size());
    self.receive(self.other(), tag(0), in);
    const Transfer& sent = self.send(self.other(), tag(0), out);
    EXPECT_TRUE(self.post(self.other(), "hello").ok());
    const Status status =
        self.transport.flush(self.abort, Deadline::after(std::chrono::seconds(10)));
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(sent.state(), Transfer::State::kDone);
    self.wait_for_all();
  });
}

}  // namespace
}  // namespace kolo::test
