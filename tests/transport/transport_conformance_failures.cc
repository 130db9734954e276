// Conformance: aborts, deadlines and fail_all().
#include "tests/transport/transport_conformance.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

namespace kolo::test {
namespace {

Error broken() {
  return {.code = ErrorCode::kAborted, .message = "the test broke it", .file = "", .line = 0};
}

TEST_P(TransportConformance, ConnectHeedsAbortAndDeadline) {
  const auto world = GetParam().make(1);
  std::atomic<int> meeting = 0;
  ConformanceRank self(0, 1, world->at(0), meeting);
  const std::vector<Peer> peers{{.address = world->at(0).address(), .same_host = true}};
  Abort abort;
  EXPECT_EQ(world->at(0)
                .connect(0, peers, self, abort, Deadline::after(std::chrono::seconds(0)))
                .error()
                .code,
            ErrorCode::kTimeout);
  abort.raise(broken());
  EXPECT_EQ(world->at(0).connect(0, peers, self, abort, Deadline::never()).error().message,
            "the test broke it");
}

// The receiver does not read, so that part of the message cannot leave.
TEST_P(TransportConformance, FlushEndsAtTheDeadlineAndAtAnAbort) {
  std::atomic<bool> through = false;
  run(2, [&through](ConformanceRank& self) {
    if (self.rank == 1) {
      while (!through) std::this_thread::yield();
      return;
    }
    const std::unique_ptr<void, std::function<void(void*)>> at_return(
        &through, [&through](void*) { through = true; });
    const auto out = pattern(std::size_t{8} << 20, 1);
    const Transfer& sent = self.send(1, tag(0), out);
    const auto begin = Deadline::Clock::now();
    Status status =
        self.transport.flush(self.abort, Deadline::after(std::chrono::milliseconds(50)));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kTimeout);
    EXPECT_THAT(status.error().message, testing::HasSubstr("rank 0"));

    std::thread other([&self] { self.abort.raise(broken()); });
    status = self.transport.flush(self.abort, Deadline::after(std::chrono::seconds(20)));
    other.join();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "the test broke it");
    EXPECT_LT(Deadline::Clock::now() - begin, std::chrono::seconds(10));
    EXPECT_EQ(sent.state(), Transfer::State::kPending);
    self.transport.fail_all(broken());
    EXPECT_EQ(sent.state(), Transfer::State::kFailed);
  });
}

TEST_P(TransportConformance, AfterFailAllEverythingFailsAtOnce) {
  run(2, [](ConformanceRank& self) {
    std::vector<std::byte> in(100);
    const auto out = pattern(100, 1);
    const Transfer& waiting = self.receive(self.other(), tag(0), in);
    self.transport.fail_all(broken());
    const Transfer& sent = self.send(self.other(), tag(1), out);
    const Transfer& to_self = self.send(self.rank, tag(1), out);
    const Transfer& received = self.receive(self.other(), tag(1), in);
    for (const Transfer* each : {&waiting, &sent, &to_self, &received}) {
      EXPECT_EQ(each->state(), Transfer::State::kFailed);
      EXPECT_EQ(each->status().error().message, "the test broke it");
    }
    EXPECT_EQ(self.post(self.other(), "hello").error().message, "the test broke it");
    EXPECT_FALSE(self.transport.flush(self.abort, Deadline::after(std::chrono::seconds(1))).ok());
    self.transport.fail_all(broken());  // a second call changes nothing
    EXPECT_FALSE(self.transport.progress());
  });
}

// Both sides give up at different points of a stream of messages, and then write over their memory.
// The receiver's new contents must stay, and the receiver must not see the sender's.
TEST_P(TransportConformance, FailAllLetsGoOfMemory) {
  for (int point = 0; point < 12; ++point) {
    std::atomic<int> failed = 0;
    run(2, [point, &failed, exact = GetParam().reads_end_with_fail_all](ConformanceRank& self) {
      constexpr std::uint32_t kCount = 6;
      std::vector<std::vector<std::byte>> out(kCount);
      std::vector<std::vector<std::byte>> in(kCount);
      std::vector<const Transfer*> received;
      for (std::uint32_t i = 0; i < kCount; ++i) {
        const std::size_t size = i % 2 == 0 ? 2000 : std::size_t{1} << 18;
        out[i] = pattern(size, i);
        in[i].resize(size);
        received.push_back(&self.receive(self.other(), tag(i), in[i]));
        self.send(self.other(), tag(i), out[i]);
      }
      // Rank 1 gives up at once or soon, rank 0 a little earlier or later.
      const int polls = self.rank == 1 ? point * 3 : 40 - point * 3;
      for (int i = 0; i < polls; ++i) self.transport.progress();
      self.transport.fail_all(broken());
      for (auto& data : out) std::fill(data.begin(), data.end(), std::byte{0xee});
      std::vector<std::vector<std::byte>> after = in;
      for (std::uint32_t i = 0; i < kCount; ++i) {
        const Transfer& each = *received[i];
        ASSERT_NE(each.state(), Transfer::State::kPending);
        if (each.state() == Transfer::State::kDone) {
          if (exact) {
            EXPECT_EQ(in[i], pattern(in[i].size(), i)) << "a message with what came afterwards";
          }
        } else {
          std::fill(in[i].begin(), in[i].end(), std::byte{0x77});
          after[i] = in[i];
        }
      }
      ++failed;
      while (failed < self.size) self.transport.progress();
      EXPECT_EQ(in, after) << "written after fail_all()";
    });
  }
}

// The peer of a rank that has failed all its transfers still sends to its receives.
TEST_P(TransportConformance, WhatComesAfterFailAllIsDropped) {
  std::atomic<bool> through = false;
  run(2, [&through](ConformanceRank& self) {
    std::vector<std::byte> in(300'000, std::byte{0x77});
    const auto out = pattern(in.size(), 1);
    if (self.rank == 1) {
      self.receive(0, tag(0), in);
      self.receive(0, tag(1), std::span(in).first(10));
      self.transport.fail_all(broken());
      self.meet();
      while (!through) self.transport.progress();
      EXPECT_EQ(std::count(in.begin(), in.end(), std::byte{0x77}), 300'000);
      EXPECT_TRUE(self.messages.empty());
    } else {
      self.meet();
      self.send(1, tag(0), out);
      self.send(1, tag(1), std::span(out).first(10));
      EXPECT_TRUE(self.post(1, "too late").ok());
      for (int i = 0; i < 1000; ++i) self.transport.progress();
      through = true;
      self.transport.fail_all(broken());
    }
  });
}

}  // namespace
}  // namespace kolo::test
