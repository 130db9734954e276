// The links between ranks by themselves; with the store they are in many_ranks_test.
#include "runtime/bootstrap/relay.h"

#include "runtime/bootstrap/secret.h"
#include "runtime/bootstrap/store_wire.h"
#include "tests/support/deadlines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>
#include <latch>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kolo::relay_test {
namespace {

/// Ranks with their links, and the ends at which a store would be.
class Linked {
 public:
  explicit Linked(int size) : size_(size) {
    const std::string token(kNonceSize, 't');
    for (int rank = 0; rank < size; ++rank) {
      auto relay = Relay::open();
      EXPECT_TRUE(relay.ok()) << relay.error().message;
      std::array<int, 2> ends = {};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
      ranks.push_back({*std::move(relay), UniqueDescriptor(ends[0]), UniqueDescriptor(ends[1])});
      places_.push_back({.rank = rank, .size = size, .parent = {}, .token = token});
    }
    for (std::vector<RelayTree> trees = {{0, size}}; !trees.empty();) {
      const RelayTree tree = trees.back();
      trees.pop_back();
      for (const RelayTree& below : trees_below(tree)) {
        places_[index(below.first)].parent = {"127.0.0.1", ranks[index(tree.first)].relay.port()};
        trees.push_back(below);
      }
    }
  }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  const RelayPlace& place(int rank) const { return places_[index(rank)]; }

  struct Rank {
    Relay relay;
    UniqueDescriptor to_store;
    UniqueDescriptor store;
  };
  /// Each rank is a thread that links itself and then runs `body`.
  void run(const std::function<void(int rank, Relay& relay)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank)
      threads.emplace_back([&, rank] {
        Rank& mine = ranks[index(rank)];
        mine.relay.link(place(rank), mine.to_store.get(), later());
        body(rank, mine.relay);
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<Rank> ranks;

 private:
  const int size_;
  std::vector<RelayPlace> places_;
};

/// Before waits end by themselves.
void expect_no_answer(Relay& relay, std::string_view phase) {
  const Deadline soon = Deadline::after(later().remaining() / 6);
  EXPECT_FALSE(relay.exchange(phase, "", later()).has_value());
  EXPECT_FALSE(soon.expired());
}

TEST(Relay, TreesAreThePartsOfARangeOfRanks) {
  for (int size = 1; size < 500; ++size) {
    int next = 1;
    int least = size;
    int most = 0;
    const auto below = trees_below({0, size});
    EXPECT_LE(below.size(), static_cast<std::size_t>(kRelayDegree));
    for (const RelayTree& tree : below) {
      EXPECT_EQ(tree.first, next);
      next = tree.end;
      least = std::min(least, tree.end - tree.first);
      most = std::max(most, tree.end - tree.first);
    }
    EXPECT_EQ(next, size);
    EXPECT_TRUE(below.empty() || most - least <= 1) << size;
  }
}

TEST(Relay, AllGetWhatAllGive) {
  for (const int size : {1, 2, 3, 5, 6, 21, 22, 64, 100}) {
    Linked linked(size);
    // Equal values, all different ones, and runs of equal ones.
    const auto value = [size](int phase, int rank) {
      const std::array<int, 3> part = {0, rank, 3 * rank / size};
      return std::string(static_cast<std::size_t>(phase * 7), 'x') +
             std::to_string(part[static_cast<std::size_t>(phase % 3)]);
    };
    linked.run([&](int rank, Relay& relay) {
      for (int phase = 0; phase < 12; ++phase) {
        const auto body = relay.exchange(std::to_string(phase), value(phase, rank), later());
        ASSERT_TRUE(body.has_value()) << rank << " of " << size;
        Gathered all;
        for (int other = 0; other < size; ++other) all.emplace_back(value(phase, other));
        Fields expected = to_runs(all);
        expected.insert(expected.begin(), std::string(kOkReply));
        EXPECT_EQ(*parse_body(*body), expected);
      }
    });
  }
}

TEST(Relay, AnAnswerGoesDown) {
  Linked linked(30);
  const std::string answer(3'000'000, 'b');
  linked.run([&](int rank, Relay& relay) {
    EXPECT_EQ(relay.pass_down(rank == 0 ? std::optional(answer) : std::nullopt, later()), answer);
  });
}

TEST(Relay, AStrangerIsNoChild) {
  Linked linked(6);
  RelayPlace stranger = linked.place(5);
  stranger.token.back() = 'x';
  auto other = Relay::open();
  ASSERT_TRUE(other.ok());
  other->link(stranger, linked.ranks[0].to_store.get(), later());  // it has no children itself
  linked.run([&](int rank, Relay& relay) {
    EXPECT_TRUE(relay.exchange("phase", std::to_string(rank), later()).has_value());
  });
  EXPECT_FALSE(other->pass_down(std::nullopt, later()).has_value());
}

TEST(Relay, WhatComesFromTheStoreEndsTheWaitsOfAll) {
  Linked linked(60);
  std::latch all_have_answers(60);
  linked.run([&](int rank, Relay& relay) {
    EXPECT_TRUE(relay.exchange("phase", "", later()).has_value());
    all_have_answers.arrive_and_wait();
    if (rank == 7) {
      // Not in the next exchange, as a rank that measures. Only two ranks hear from the store.
      for (const std::size_t hears : {20U, 59U})
        EXPECT_EQ(::send(linked.ranks[hears].store.get(), "!", 1, 0), 1);
      return;
    }
    expect_no_answer(relay, "next phase");
  });
}

TEST(Relay, OtherRanksGoToTheStoreWhereALinkBreaks) {
  std::mt19937 random(45);
  for (int round = 0; round < 20; ++round) {
    const int size = 2 + static_cast<int>(random() % 60);
    const int gone = static_cast<int>(random() % static_cast<unsigned>(size));
    Linked linked(size);
    linked.run([&](int rank, Relay& relay) {
      EXPECT_TRUE(relay.exchange("phase", "", later()).has_value());
      if (rank == gone) {
        const Relay ends = std::move(relay);
        return;
      }
      expect_no_answer(relay, "next phase");
    });
  }
}

TEST(Relay, RanksOfDifferentExchangesGoToTheStore) {
  Linked linked(25);
  linked.run(
      [&](int rank, Relay& relay) { expect_no_answer(relay, rank == 24 ? "mine" : "phase"); });
}

}  // namespace
}  // namespace kolo::relay_test
