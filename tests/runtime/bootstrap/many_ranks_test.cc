// As many ranks as in a large job: they meet at one store, and their exchanges go over links
// between them.
#include "runtime/base/check.h"
#include "runtime/bootstrap/relay.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/tcp_store_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kolo {
namespace {

std::unique_ptr<TcpStoreServer> serve(int ranks,
                                      std::function<void(const std::string&)> warn = nullptr) {
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 6 * static_cast<rlim_t>(ranks) + 64);
  ::setrlimit(RLIMIT_NOFILE, &files);
  EXPECT_GT(files.rlim_cur, 5U * static_cast<rlim_t>(ranks))
      << "both ends of each connection and link are in this process, and where a rank listens";
  TcpStoreServer::Options options;
  options.endpoint.host = "127.0.0.1";
  options.size = ranks;
  options.secret = "secret";
  options.warn = std::move(warn);
  auto server = TcpStoreServer::start(std::move(options));
  EXPECT_TRUE(server.ok()) << server.error().message;
  return *std::move(server);
}

Deadline within(int seconds) { return Deadline::after(std::chrono::seconds(seconds)); }

using Store = std::unique_ptr<TcpStore>;

/// Threads that have joined the store as ranks from 0 on, and run `body`.
void run_ranks(const TcpStoreServer& server, int ranks, int joined,
               const std::function<void(int rank, Store& store)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < joined; ++rank)
    threads.emplace_back([&, rank] {
      auto store =
          TcpStore::join({"127.0.0.1", server.port()}, {rank, ranks, fmt::format("rank {}", rank)},
                         "secret", within(100));
      ASSERT_TRUE(store.ok()) << store.error().message;
      body(rank, *store);
    });
  for (std::thread& thread : threads) thread.join();
}

/// An exchange in which each rank gives its number after `blob`. Why it failed; nothing if all have
/// got what all gave.
std::string exchange(TcpStore& store, std::string_view phase, int rank, int ranks,
                     const std::string& blob = {}, Deadline deadline = within(100)) {
  StoreBootstrap bootstrap(store, rank, ranks);
  const auto all = bootstrap.exchange(phase, blob + std::to_string(rank), deadline);
  if (!all.ok()) return all.error().message;
  for (std::size_t other = 0; other < all->size(); ++other)
    if ((*all)[other] != blob + std::to_string(other)) return "another value";
  return {};
}

TEST(ManyRanks, AThousandExchangeBlobs) {
  constexpr int kRanks = 1000;
  const auto server = serve(kRanks);
  std::atomic<int> good = 0;
  const auto began = std::chrono::steady_clock::now();
  run_ranks(*server, kRanks, kRanks, [&](int rank, Store& store) {
    for (const char* phase : {"hello", "again", "once more"})
      EXPECT_EQ(exchange(*store, phase, rank, kRanks, std::string(150, 'x')), "");
    store->leave();
    ++good;
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(good, kRanks);
  std::printf("%d ranks met and exchanged blobs in %.2f s\n", kRanks, took.count());
}

TEST(ManyRanks, ARankThatEndsInAnExchangeIsNamedByAllOthers) {
  constexpr int kRanks = 300;
  const auto server = serve(kRanks);
  std::latch all_have_met(kRanks);
  run_ranks(*server, kRanks, kRanks, [&](int rank, Store& store) {
    EXPECT_EQ(exchange(*store, "hello", rank, kRanks), "");
    all_have_met.arrive_and_wait();
    if (rank == 7) return store.reset();
    const std::string why = exchange(*store, "again", rank, kRanks);
    EXPECT_EQ(why, "rank 7 (rank 7) ended while the ranks were meeting; its own output says why");
    EXPECT_EQ(store->give_up(KOLO_ERROR(kPeerLost, "a link")).message, why);
  });
}

// The ranks next to it keep their links until they have the reason.
TEST(ManyRanks, ARankThatGivesUpInAnExchangeTellsAllOthersWhy) {
  constexpr int kRanks = 300;
  const auto server = serve(kRanks);
  std::latch all_have_met(kRanks);
  std::latch all_know(kRanks);
  run_ranks(*server, kRanks, kRanks, [&](int rank, Store& store) {
    EXPECT_EQ(exchange(*store, "hello", rank, kRanks), "");
    all_have_met.arrive_and_wait();
    if (rank == 7) {
      const Error why = store->give_up(KOLO_ERROR(kTransport, "no link to rank 9"));
      EXPECT_EQ(why.message, "no link to rank 9; rank 7 (rank 7) says so");
      return all_know.arrive_and_wait();
    }
    const Deadline soon = within(8);  // before ranks that wait in vain go to the store
    EXPECT_EQ(exchange(*store, "again", rank, kRanks),
              "no link to rank 9; rank 7 (rank 7) says so");
    EXPECT_FALSE(soon.expired());
    all_know.arrive_and_wait();
  });
}

TEST(ManyRanks, ARankThatDoesNotComeToAnExchangeIsNamed) {
  constexpr int kRanks = 300;
  const auto server = serve(kRanks);
  std::latch all_know(kRanks);
  run_ranks(*server, kRanks, kRanks, [&](int rank, Store& store) {
    EXPECT_EQ(exchange(*store, "hello", rank, kRanks), "");
    if (rank == 7) {
      return all_know.arrive_and_wait();
    }
    const std::string why = exchange(*store, "again", rank, kRanks, {}, within(8));
    EXPECT_NE(why.find("1 of 300 ranks did not reach phase 'again' of the bootstrap in time: 7;"),
              why.npos)
        << why;
    all_know.arrive_and_wait();
  });
}

// It comes when the others wait at the store.
TEST(ManyRanks, ALateRankMeetsTheOthersAtTheStore) {
  constexpr int kRanks = 300;
  std::promise<std::string> warned;
  const auto server = serve(kRanks, [&](const std::string& line) { warned.set_value(line); });
  run_ranks(*server, kRanks, kRanks, [&](int rank, Store& store) {
    EXPECT_EQ(exchange(*store, "hello", rank, kRanks), "");
    if (rank == 7) {
      const std::string line = warned.get_future().get();
      EXPECT_NE(line.find("rank 7 of 300 has not come"), line.npos) << line;
    }
    EXPECT_EQ(exchange(*store, "again", rank, kRanks, {}, within(12)), "");
    EXPECT_EQ(exchange(*store, "once more", rank, kRanks), "");
    store->leave();
  });
}

/// A rank whose requests to the store a test makes itself.
class BareRank {
 public:
  BareRank(const TcpStoreServer& server, int rank, int ranks)
      : member_{rank, ranks, "a bare rank"} {
    auto fd = connect_to({"127.0.0.1", server.port()}, within(100));
    EXPECT_TRUE(fd.ok()) << fd.error().message;
    fd_ = *std::move(fd);
    const auto greeting = receive_exactly(fd_.get(), kStoreHello.size() + kNonceSize, within(100));
    EXPECT_TRUE(greeting.ok()) << greeting.error().message;
    const std::string nonce = greeting->substr(kStoreHello.size());
    send({"mine", store_proof("secret", "client", nonce, "mine", member_), std::to_string(rank),
          std::to_string(ranks), member_.who, member_.job});
    EXPECT_EQ(reply().front(), kOkReply);
  }
  int fd() const { return fd_.get(); }
  std::string value() const { return std::to_string(member_.rank); }
  void send(const Fields& request) {
    EXPECT_TRUE(send_all(fd_.get(), to_frame(request), within(100)).ok());
  }
  Fields reply() {
    const auto body = receive_body(fd_.get(), kReplyLimit, within(100));
    EXPECT_TRUE(body.ok()) << body.error().message;
    return *parse_body(*body);
  }
  /// Takes its place among the ranks, in the exchange "hello".
  Relay link() {
    auto relay = Relay::open();
    EXPECT_TRUE(relay.ok());
    send(
        {std::string(kExchangeRequest), "hello", value(), "100000", std::to_string(relay->port())});
    const Fields place = reply();
    EXPECT_EQ(place.size(), 4U);
    relay->link({.rank = member_.rank,
                 .size = member_.size,
                 .parent = {"127.0.0.1", static_cast<std::uint16_t>(std::stoi(place[2]))},
                 .token = place[3]},
                fd_.get(), within(100));
    EXPECT_TRUE(relay->pass_down(std::nullopt, within(100)).has_value());
    return *std::move(relay);
  }

 private:
  const Member member_;
  UniqueDescriptor fd_;
};

TEST(ManyRanks, ARankThatAsksForNothingIsToldOfAFailureOnce) {
  constexpr int kRanks = kRelayRanks;
  constexpr int kLast = kRanks - 1;
  const auto server = serve(kRanks);
  std::latch all_have_met(kRanks);
  std::thread silent([&] {
    BareRank rank(*server, kLast, kRanks);
    const Relay relay = rank.link();
    all_have_met.arrive_and_wait();
    EXPECT_EQ(rank.reply().front(), kErrorReply);
    // As a rank does that has begun to ask meanwhile.
    rank.send({std::string(kGetRequest), "key", "100000"});
    rank.send({std::string(kLeaveRequest)});
    const auto more = receive_exactly(rank.fd(), 1, within(100));
    ASSERT_FALSE(more.ok());
    EXPECT_EQ(more.error().code, ErrorCode::kPeerLost);
  });
  run_ranks(*server, kRanks, kLast, [&](int rank, Store& store) {
    EXPECT_EQ(exchange(*store, "hello", rank, kRanks), "");
    all_have_met.arrive_and_wait();
    if (rank == 7) return store.reset();
    EXPECT_NE(exchange(*store, "again", rank, kRanks), "");
  });
  silent.join();
}

// It listens where ranks below it come, and that is all.
TEST(ManyRanks, ARankThatPassesNothingOnHindersNobody) {
  constexpr int kRanks = kRelayRanks;
  const auto server = serve(kRanks);
  const auto listener = listen_at({});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  BareRank idle(*server, 1, kRanks);
  idle.send(
      {std::string(kExchangeRequest), "hello", "1", "100000", std::to_string(listener->port)});
  std::vector<std::thread> threads;
  std::string warning;  // rank 0's
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == 1) continue;
    threads.emplace_back([&, rank] {
      auto store = TcpStore::join({"127.0.0.1", server->port()},
                                  {rank, kRanks, fmt::format("rank {}", rank)}, "secret",
                                  within(100), [&, rank](const std::string& line) {
                                    if (rank == 0) warning += line;
                                  });
      ASSERT_TRUE(store.ok()) << store.error().message;
      EXPECT_EQ(exchange(**store, "hello", rank, kRanks, {}, within(8)), "");
      (*store)->leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(warning.find("do not reach each other"), std::string::npos) << warning;
}

// All others have the answer from each other, and may be in the next exchange or have left.
TEST(ManyRanks, ARankWhoseLinkBreaksGetsTheAnswerFromTheStore) {
  constexpr int kRanks = kRelayRanks;
  constexpr int kLast = kRanks - 1;  // no rank is below it
  for (const bool others_go_on : {true, false}) {
    const auto server = serve(kRanks);
    std::thread broken([&] {
      BareRank rank(*server, kLast, kRanks);
      {
        Relay relay = rank.link();
        EXPECT_TRUE(relay.exchange("again", rank.value(), within(100)).has_value());
      }
      // As if the answer had been lost.
      rank.send({std::string(kExchangeRequest), "again", rank.value(), "100000"});
      EXPECT_EQ(rank.reply().size(), 1U + kRanks);
      if (others_go_on) {
        rank.send({std::string(kExchangeRequest), "once more", rank.value(), "100000"});
        EXPECT_EQ(rank.reply().size(), 1U + kRanks);
      }
      rank.send({std::string(kLeaveRequest)});
    });
    run_ranks(*server, kRanks, kLast, [&](int rank, Store& store) {
      EXPECT_EQ(exchange(*store, "hello", rank, kRanks), "");
      EXPECT_EQ(exchange(*store, "again", rank, kRanks), "");
      if (others_go_on) {
        EXPECT_EQ(exchange(*store, "once more", rank, kRanks), "");
      }
      store->leave();
    });
    broken.join();
  }
}

}  // namespace
}  // namespace kolo
