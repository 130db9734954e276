// Conformance: tagged transfers.
#include "tests/transport/transport_conformance.h"

#include "runtime/base/ordered_call.h"

#include <gmock/gmock.h>

#include <array>
#include <functional>
#include <string>

namespace kolo::test {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kSizes[] = {0,    1,         7,           4 * kKiB - 1,   4 * kKiB,
                                  4097, 64 * kKiB, 1024 * kKiB, 8 * 1024 * kKiB};

TEST_P(TransportConformance, EverySizeArrivesWhole) {
  run(2, [](ConformanceRank& self) {
    for (const std::size_t size : kSizes) {
      const Tag step = tag(0, size);
      const auto out = pattern(size, static_cast<unsigned>(self.rank));
      std::vector<std::byte> in(size);
      self.receive(self.other(), step, in);
      self.send(self.other(), step, out);
      self.wait_for_all();
      EXPECT_EQ(in, pattern(size, static_cast<unsigned>(self.other()))) << size << " bytes";
    }
  });
}

TEST_P(TransportConformance, AMessageMayComeBeforeItsReceive) {
  run(2, [](ConformanceRank& self) {
    for (const std::size_t size : kSizes) {
      const auto out = pattern(size, 5);
      if (self.rank == 0) {
        self.send(1, tag(1, size), out);
        EXPECT_TRUE(self.post(1, std::to_string(size)).ok());
        self.wait_for_all();
      } else {
        // Small messages have arrived when the control message has.
        self.wait([&] { return !self.messages.empty(); }, "the sender announced its message");
        self.messages.clear();
        std::vector<std::byte> in(size);
        self.receive(0, tag(1, size), in);
        self.wait_for_all();
        EXPECT_EQ(in, out) << size << " bytes";
      }
      self.meet();
    }
  });
}

TEST_P(TransportConformance, AMessageIsUnclaimedUntilItsReceive) {
  run(2, [](ConformanceRank& self) {
    for (const std::size_t size : kSizes) {
      const auto out = pattern(size, 5);
      Tag named = tag(1, size);
      named.call = 7;
      if (self.rank == 0) {
        self.send(1, named, out);
        self.wait_for_all();
      } else {
        self.wait([&] { return !self.transport.unclaimed().empty(); }, "the message has come");
        const auto unclaimed = self.transport.unclaimed();
        ASSERT_EQ(unclaimed.size(), 1U);
        EXPECT_EQ(unclaimed.front(), (MessageKey{.peer = 0, .tag = named}));
        EXPECT_EQ(unclaimed.front().tag.call, 7U);
        std::vector<std::byte> in(size);
        self.receive(0, named, in);
        self.wait_for_all();
        EXPECT_TRUE(self.transport.unclaimed().empty());
      }
      self.meet();
    }
  });
}

TEST_P(TransportConformance, TransfersCompleteInAnyOrderOfPosting) {
  run(2, [](ConformanceRank& self) {
    constexpr std::uint32_t kCount = 200;
    std::vector<std::vector<std::byte>> out(kCount);
    std::vector<std::vector<std::byte>> in(kCount);
    const auto size_of = [](std::uint32_t i) { return std::size_t{i} * 331 % 20000; };
    for (std::uint32_t i = 0; i < kCount; ++i) {
      out[i] = pattern(size_of(i), i * 2 + static_cast<unsigned>(self.rank));
      self.send(self.other(), tag(i), out[i]);
    }
    for (std::uint32_t i = kCount; i-- > 0;) {
      in[i].resize(size_of(i));
      self.receive(self.other(), tag(i), in[i]);
    }
    self.wait_for_all();
    for (std::uint32_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(in[i], pattern(size_of(i), i * 2 + static_cast<unsigned>(self.other()))) << i;
    }
  });
}

TEST_P(TransportConformance, OneTagIsFirstInFirstOut) {
  run(2, [](ConformanceRank& self) {
    constexpr unsigned kCount = 40;
    // Small and large in turn, so that a fast path cannot overtake; half of the receives are posted
    // first.
    const auto size_of = [](unsigned i) { return i % 2 == 0 ? std::size_t{16} : 64 * kKiB; };
    std::vector<std::vector<std::byte>> in(kCount);
    std::vector<std::vector<std::byte>> out(kCount);
    const auto receive = [&](unsigned i) {
      in[i].resize(size_of(i));
      self.receive(self.other(), tag(9), in[i]);
    };
    for (unsigned i = 0; i < kCount / 2; ++i) receive(i);
    for (unsigned i = 0; i < kCount; ++i) {
      out[i] = pattern(size_of(i), i);
      self.send(self.other(), tag(9), out[i]);
    }
    for (unsigned i = kCount / 2; i < kCount; ++i) receive(i);
    self.wait_for_all();
    for (unsigned i = 0; i < kCount; ++i) EXPECT_EQ(in[i], out[i]) << i;
  });
}

TEST_P(TransportConformance, TagsThatDifferInOneFieldDoNotMatch) {
  run(2, [](ConformanceRank& self) {
    const Tag tags[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 1, 1ULL << 40}};
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in(std::size(tags), std::vector<std::byte>(100));
    for (unsigned i = 0; i < std::size(tags); ++i) out.push_back(pattern(100, i));
    for (std::size_t i = std::size(tags); i-- > 0;) self.receive(self.other(), tags[i], in[i]);
    for (std::size_t i = 0; i < std::size(tags); ++i) self.send(self.other(), tags[i], out[i]);
    self.wait_for_all();
    EXPECT_EQ(in, out);
  });
}

/// Rank 1 receives `excess` more bytes than rank 0 sends, with `calls` by rank.
void meet_unequal(ConformanceRank& self, std::size_t excess, std::array<std::uint64_t, 2> calls,
                  const std::function<void(const std::string& text, std::size_t size)>& check) {
  for (const std::size_t size : {std::size_t{100}, 64 * kKiB, 1024 * kKiB}) {
    for (const bool posted_first : {true, false}) {
      Tag step = tag(posted_first ? 1 : 0, size);
      step.call = calls[static_cast<std::size_t>(self.rank)];
      if (self.rank == 0) {
        self.meet();
        const auto out = pattern(size, 1);
        self.send(1, step, out);
        EXPECT_TRUE(self.post(1, "sent").ok());
        self.meet();
        self.wait_for_all();
        continue;
      }
      std::vector<std::byte> in(size + excess, std::byte{0x5a});
      const std::vector<std::byte> untouched = in;
      Transfer* received = posted_first ? &self.receive(0, step, in) : nullptr;
      self.meet();
      self.wait([&] { return !self.messages.empty(); }, "the sender announced its message");
      self.messages.clear();
      if (received == nullptr) received = &self.receive(0, step, in);
      self.wait([&] { return received->state() != Transfer::State::kPending; }, "the mismatch");
      EXPECT_EQ(received->state(), Transfer::State::kFailed);
      EXPECT_EQ(received->status().error().code, ErrorCode::kMismatch);
      check(received->status().error().message, size);
      EXPECT_EQ(in, untouched);
      self.meet();
    }
  }
}

TEST_P(TransportConformance, AnotherLengthFailsTheReceive) {
  run(2, [](ConformanceRank& self) {
    meet_unequal(self, 1, {}, [](const std::string& text, std::size_t size) {
      EXPECT_THAT(text, testing::AllOf(testing::HasSubstr(std::to_string(size)),
                                       testing::HasSubstr(std::to_string(size + 1)),
                                       testing::HasSubstr("rank 0")));
    });
  });
}

TEST_P(TransportConformance, AnotherCallFailsTheReceive) {
  const auto call = [](ReduceOp op) {
    return call_fingerprint(OperationKind::kAllreduce, DataType::kInt32, op, 0, 25);
  };
  run(2, [&](ConformanceRank& self) {
    meet_unequal(self, 0, {call(ReduceOp::kSum), call(ReduceOp::kMax)},
                 [](const std::string& text, std::size_t) {
                   EXPECT_THAT(text, testing::StartsWith("rank 1 expected a message of call 0x"));
                   EXPECT_THAT(text, testing::HasSubstr("from rank 0"));
                 });
  });
}

TEST_P(TransportConformance, ARankTalksToItself) {
  run(1, [](ConformanceRank& self) {
    for (const std::size_t size : kSizes) {
      for (const bool posted_first : {true, false}) {
        const Tag step = tag(posted_first ? 1 : 0, size);
        const auto out = pattern(size, 3);
        std::vector<std::byte> in(size);
        if (posted_first) self.receive(0, step, in);
        self.send(0, step, out);
        if (!posted_first) self.receive(0, step, in);
        self.wait_for_all();
        EXPECT_EQ(in, out) << size;
      }
    }
    EXPECT_TRUE(self.post(0, "first").ok());
    EXPECT_TRUE(self.post(0, "second").ok());
    EXPECT_TRUE(self.messages.empty());  // told only within progress()
    self.wait([&] { return self.messages.size() == 2; }, "messages to oneself");
    EXPECT_THAT(self.messages,
                testing::ElementsAre(testing::Pair(0, "first"), testing::Pair(0, "second")));
  });
}

TEST_P(TransportConformance, AllToAllOfFour) {
  run(4, [](ConformanceRank& self) {
    constexpr std::size_t kSize = 100 * kKiB + 3;
    for (std::uint64_t round = 0; round < 5; ++round) {
      std::vector<std::vector<std::byte>> in(4, std::vector<std::byte>(kSize));
      std::vector<std::vector<std::byte>> out(4);
      for (int peer = 0; peer < self.size; ++peer) {
        const auto i = static_cast<std::size_t>(peer);
        out[i] = pattern(kSize, static_cast<unsigned>(self.rank * 4 + peer) + 100);
        self.receive(peer, tag(0, round), in[i]);
        self.send(peer, tag(0, round), out[i]);
      }
      self.wait_for_all();
      for (int peer = 0; peer < self.size; ++peer) {
        EXPECT_EQ(in[static_cast<std::size_t>(peer)],
                  pattern(kSize, static_cast<unsigned>(peer * 4 + self.rank) + 100));
      }
    }
  });
}

/// Continues from within the completion of its transfer, as an executor does.
class Chain final : public TransferListener {
 public:
  Chain(Transport& transport, int peer, std::uint32_t length)
      : transport_(transport), peer_(peer), length_(length) {}
  void on_transfer_done(Transfer& transfer) override {
    EXPECT_TRUE(transfer.status().ok());
    if (--pending_ == 0) advance();
  }
  void advance() {
    if (++step_ > length_) return;
    pending_ = 2;  // a rendezvous may be answered before its sender knows that it was accepted
    outgoing_ = Transfer(*this, 0);
    incoming_ = Transfer(*this, 1);
    transport_.send(peer_, tag(step_), data_, outgoing_);
    transport_.receive(peer_, tag(step_), reply_, incoming_);
  }
  bool done() const { return step_ > length_; }

 private:
  Transport& transport_;
  int peer_;
  std::uint32_t length_;
  std::uint32_t step_ = 0;
  int pending_ = 0;
  std::vector<std::byte> data_ = pattern(300, 1);
  std::vector<std::byte> reply_ = std::vector<std::byte>(300);
  Transfer outgoing_;
  Transfer incoming_;
};

TEST_P(TransportConformance, ACompletionMayPostTransfers) {
  run(2, [](ConformanceRank& self) {
    Chain chain(self.transport, self.other(), 200);
    chain.advance();
    self.wait([&] { return chain.done(); }, "a chain of answers went on");
    self.meet();
  });
}

TEST_P(TransportConformance, NoSuchRankIsAnError) {
  run(1, [](ConformanceRank& self) {
    std::byte byte{};
    for (const int peer : {-1, 1}) {
      EXPECT_EQ(self.send(peer, tag(0), {&byte, 1}).state(), Transfer::State::kFailed);
      EXPECT_EQ(self.receive(peer, tag(0), {&byte, 1}).state(), Transfer::State::kFailed);
      EXPECT_FALSE(self.post(peer, "hello").ok());
      EXPECT_FALSE(self.transport.map_peer(peer, "key").ok());
    }
  });
}

}  // namespace
}  // namespace kolo::test
