// The store over TCP: rendezvous, waiting, deadlines, and all that may go wrong between two
// sockets.
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/prefix_store.h"
#include "runtime/bootstrap/store_bootstrap.h"
#include "runtime/bootstrap/tcp_store_server.h"
#include "tests/support/deadlines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <future>
#include <random>
#include <thread>

namespace kolo::tcp_store_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class TcpStoreTest : public testing::Test {
 protected:
  void serve(int size, bool keeps_listening = true) {
    TcpStoreServer::Options options;
    options.endpoint.host = "127.0.0.1";
    options.size = size;
    options.secret = "secret";
    options.keeps_listening = keeps_listening;
    auto started = TcpStoreServer::start(std::move(options));
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = *std::move(started);
    endpoint_ = {"127.0.0.1", server_->port()};
  }
  Result<std::unique_ptr<TcpStore>> join(int rank, int size, const std::string& secret = "secret") {
    return TcpStore::join(endpoint_, {rank, size, fmt::format("pid 1{} on test", rank)}, secret,
                          later());
  }
  std::unique_ptr<TcpStore> joined(int rank, int size) {
    auto store = join(rank, size);
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::unique_ptr<TcpStoreServer> server_;
  Endpoint endpoint_;
};

TEST_F(TcpStoreTest, KeysAreSetOnceAndAwaited) {
  serve(0);
  const auto a = joined(0, 2);
  const auto b = joined(1, 2);
  std::thread waiting([&] { EXPECT_EQ(*b->get("late", later()), "here"); });
  EXPECT_TRUE(a->set("early", std::string("\0x", 2)).ok());
  EXPECT_TRUE(a->set("late", "here").ok());
  waiting.join();
  EXPECT_EQ(*b->get("early", later()), std::string("\0x", 2));
  EXPECT_EQ(b->set("late", "again").error().code, ErrorCode::kInvalidArgument);
  const auto never = b->get("never", soon());
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(never.error().message, HasSubstr("'never'"));
}

TEST_F(TcpStoreTest, RanksExchangeInOneRequestEach) {
  constexpr int kSize = 24;
  serve(kSize);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      PrefixStore store("first", joined(rank, kSize));
      StoreBootstrap bootstrap(store, rank, kSize);
      for (const char* phase : {"a", "b"}) {
        const auto blobs = bootstrap.exchange(phase, fmt::format("{}{}", phase, rank), later());
        ASSERT_TRUE(blobs.ok()) << blobs.error().message;
        for (int other = 0; other < kSize; ++other) {
          EXPECT_EQ((*blobs)[static_cast<std::size_t>(other)], fmt::format("{}{}", phase, other));
        }
      }
      store.leave();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  server_->wait_until_left(later());
}

/// The loss of a rank, which `why` names.
Error loss(const std::string& why) { return Error{ErrorCode::kPeerLost, why, __FILE__, __LINE__}; }

TEST_F(TcpStoreTest, OfSeveralRanksThatGiveUpTheFirstIsRight) {
  serve(3);
  const auto a = joined(0, 3);
  const auto b = joined(1, 3);
  const auto c = joined(2, 3);
  std::thread waiting([&] {
    EXPECT_EQ(c->get("never", later()).error().message,
              "rank 3 is lost; rank 0 (pid 10 on test) says so");
  });
  const Error first = a->give_up(loss("rank 3 is lost"));
  EXPECT_EQ(first.code, ErrorCode::kPeerLost);
  EXPECT_EQ(first.message, "rank 3 is lost; rank 0 (pid 10 on test) says so");
  EXPECT_EQ(b->give_up(loss("rank 0 is lost")).message, first.message);
  waiting.join();
}

TEST_F(TcpStoreTest, ARankThatEndsWithoutAWordIsWhyOthersGiveUp) {
  serve(3);
  const auto a = joined(0, 3);
  joined(2, 3).reset();
  EXPECT_THAT(a->give_up(loss("rank 1 is lost")).message,
              HasSubstr("rank 2 (pid 12 on test) ended while the ranks were meeting"));
}

// A killed process may lose its links first.
TEST_F(TcpStoreTest, ARankThatEndsRightAfterOthersGiveUpIsWhy) {
  serve(3);
  const auto a = joined(0, 3);
  auto c = joined(2, 3);
  std::thread giving_up([&] {
    EXPECT_THAT(a->give_up(loss("UCX has given up")).message,
                HasSubstr("rank 2 (pid 12 on test) ended while the ranks were meeting"));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // or later, or sooner
  c.reset();
  giving_up.join();
}

TEST_F(TcpStoreTest, WhoGivesUpWithTheServerGoneBlamesThat) {
  serve(2);
  const auto store = joined(1, 2);
  server_.reset();
  EXPECT_THAT(store->give_up(loss("rank 0 is lost")).message,
              HasSubstr("see whether rank 0 or the launcher, which serves it, has ended"));
}

TEST_F(TcpStoreTest, TheDeadlineListsWhoIsMissing) {
  serve(3);
  const auto store = joined(1, 3);
  StoreBootstrap bootstrap(*store, 1, 3);
  const auto blobs = bootstrap.exchange("handshake", "", soon());
  ASSERT_FALSE(blobs.ok());
  EXPECT_EQ(blobs.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(blobs.error().message, AllOf(HasSubstr("2 of 3"), HasSubstr(": 0, 2;")));
}

TEST_F(TcpStoreTest, ARankThatEndsFailsTheOthersAtOnce) {
  serve(3);
  const auto store = joined(0, 3);
  auto mortal = joined(2, 3);
  std::thread waiting([&] {
    const auto gathered = store->exchange("handshake", 0, 3, "", later());
    ASSERT_FALSE(gathered.ok());
    EXPECT_EQ(gathered.error().code, ErrorCode::kPeerLost);
    EXPECT_THAT(gathered.error().message, HasSubstr("rank 2 (pid 12 on test) ended"));
  });
  mortal.reset();
  waiting.join();
}

TEST_F(TcpStoreTest, RanksThatDisagreeOnTheirNumberAllHearBothValues) {
  serve(0);
  const auto store = joined(0, 2);
  const auto other = join(1, 4);
  const auto gathered = store->exchange("handshake", 0, 2, "", later());
  for (const Error& error : {other.error(), gathered.error()}) {
    EXPECT_EQ(error.code, ErrorCode::kMismatch);
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("rank 1 (pid 11 on test) says 4"),
                      HasSubstr("rank 0 (pid 10 on test) says 2"), HasSubstr("WORLD_SIZE")));
  }
}

TEST_F(TcpStoreTest, ARankThatDoesNotExistIsRefusedAlone) {
  serve(2);
  const auto store = joined(0, 2);
  EXPECT_EQ(join(2, 2).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(store->set("a", "").ok());
}

// It may belong to another job at this port: then nobody knows which processes belong together.
TEST_F(TcpStoreTest, TheSecondProcessOfARankFailsTheMeeting) {
  serve(2, false);
  const auto a = joined(0, 2);
  const auto b = joined(1, 2);
  const auto twin = join(1, 2);
  ASSERT_FALSE(twin.ok());
  for (const Error& error : {twin.error(), a->exchange("a", 0, 2, "", later()).error(),
                             b->exchange("a", 1, 2, "", later()).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message,
                AllOf(HasSubstr("two processes say that they are rank 1: pid 11 on test and"),
                      HasSubstr("KOLO_SECRET")));
  }
}

TEST_F(TcpStoreTest, AProcessOfAnotherJobIsRefusedAlone) {
  serve(3);
  const auto join_of = [&](int rank, const std::string& job) {
    return TcpStore::join(endpoint_, {rank, 3, "test", job}, "secret", later());
  };
  const auto unknown = join_of(1, "");
  const auto a = join_of(0, "SLURM_JOB_ID=1");
  const auto stranger = join_of(2, "SLURM_JOB_ID=2");
  ASSERT_FALSE(stranger.ok());
  EXPECT_EQ(stranger.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(stranger.error().message,
              AllOf(HasSubstr("rank 2 (test) is of the job SLURM_JOB_ID=2"),
                    HasSubstr("of the job SLURM_JOB_ID=1 (rank 0, test)"), HasSubstr("MASTER_PORT"),
                    HasSubstr("KOLO_SECRET")));
  ASSERT_TRUE(unknown.ok() && a.ok());
  const auto c = join_of(2, "SLURM_JOB_ID=1");
  EXPECT_TRUE(c.ok()) << c.error().message;
}

TEST_F(TcpStoreTest, AnotherSecretIsRefused) {
  serve(2);
  for (const char* secret : {"", "other"}) {
    const auto stranger = join(0, 2, secret);
    ASSERT_FALSE(stranger.ok());
    EXPECT_EQ(stranger.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(stranger.error().message, HasSubstr("KOLO_SECRET"));
  }
  EXPECT_NE(joined(0, 2), nullptr);
  EXPECT_EQ(server_->warnings(),
            "somebody at 127.0.0.1, as rank 0, came with another secret (KOLO_SECRET)");
}

TEST_F(TcpStoreTest, GarbageAndSilenceHarmNobody) {
  serve(2);
  const auto silent = connect_to(endpoint_, later());
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1 << 16, '\xff'), std::string(64, '\0'),
        to_frame({"a"}), to_frame({"n", "p", "x", "2", "w"})}) {
    const auto fd = connect_to(endpoint_, later());
    ASSERT_TRUE(fd.ok());
    // The server may hang up in the middle.
    [[maybe_unused]] const Status sent = send_all(fd->get(), bytes, later());
    while (receive_exactly(fd->get(), 1, later()).ok()) continue;
  }
  const auto a = joined(0, 2);
  const auto b = joined(1, 2);
  EXPECT_TRUE(a->set("a", "1").ok());
  EXPECT_EQ(*b->get("a", later()), "1");
}

TEST_F(TcpStoreTest, AFloodIsCutOff) {
  serve(2);
  const auto fd = connect_to(endpoint_, later());
  ASSERT_TRUE(fd.ok());
  // The first frame is longer than a stranger's may be, so nobody reads the rest.
  const std::string flood(std::size_t{1} << 20, '\xff');
  int sent = 0;
  while (sent < 512 && send_all(fd->get(), flood, later()).ok()) ++sent;
  EXPECT_LT(sent, 32);
  EXPECT_NE(joined(0, 2), nullptr);
}

// A process without free descriptors cannot accept a connection; the connection stays in the
// backlog, and the server must not spin on it.
TEST_F(TcpStoreTest, WithoutDescriptorsTheServerWaits) {
  serve(2);
  const UniqueDescriptor early(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 256);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueDescriptor> taken;
  while (taken.empty() || taken.back()) taken.emplace_back(::dup(early.get()));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint_.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(early.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::clock_t before = std::clock();
  ::poll(nullptr, 0, 500);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 10);
  taken.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(receive_exactly(early.get(), kStoreHello.size(), later()).ok());
  EXPECT_NE(joined(0, 2), nullptr);
}

// If nobody listens yet at an ephemeral port, a socket may get this very port and connect to
// itself. It would then keep rank 0 from listening there.
TEST_F(TcpStoreTest, NobodyIsConnectedToItself) {
  int first = 0;
  int last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  ASSERT_GT(first, 0);
  ASSERT_GT(last, first);
  // The system prefers ports of the first one's parity. Choose any of them, as this test may run
  // twice.
  std::random_device random;
  std::uniform_int_distribution<int> steps(0, (last - first) / 2);
  do {
    endpoint_ = {"127.0.0.1", static_cast<std::uint16_t>(first + 2 * steps(random))};
  } while (!listen_at(endpoint_).ok());
  for (int attempt = 0; attempt < 40000; ++attempt) {
    ASSERT_FALSE(connect_to(endpoint_, Deadline::after(milliseconds(0))).ok()) << attempt;
  }
}

TEST(Listener, WithoutAnAddressItIsFoundByBothFamilies) {
  const auto listener = listen_at({"", 0});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  for (const char* address : {"127.0.0.1", "::1"}) {
    // Nobody listens there; this only tells whether this host has the address family.
    if (!listen_at({address, 0}).ok()) continue;
    const auto connected = connect_to({address, listener->port}, soon());
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    const UniqueDescriptor accepted(::accept(listener->fd.get(), nullptr, nullptr));
    ASSERT_TRUE(accepted);
    EXPECT_EQ(*remote_address(accepted.get()), address);
    EXPECT_EQ(*local_address(accepted.get()), address);
  }
}

TEST_F(TcpStoreTest, ABusyPortIsOneLine) {
  serve(2);
  const auto second = TcpStoreServer::start({.endpoint = endpoint_});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr(to_text(endpoint_)), HasSubstr("in use"), HasSubstr("MASTER_PORT")));
}

TEST_F(TcpStoreTest, NobodyThereIsOneLine) {
  serve(2);
  server_.reset();
  const auto store = TcpStore::join(endpoint_, {3, 4, "pid 1 on here"}, "", soon());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(store.error().message, AllOf(HasSubstr("rank 3"), HasSubstr(to_text(endpoint_)),
                                           HasSubstr("refused"), HasSubstr("each host's own")));
}

TEST_F(TcpStoreTest, ANameThatNobodyKnowsYetIsAskedForAgainAndToldOnce) {
  std::vector<std::string> told;
  const auto deadline = Deadline::after(milliseconds(1200));
  const auto unknown = TcpStore::join({"no-such-host.invalid", 29500}, {0, 2, "test"}, "", deadline,
                                      [&](const std::string& line) { told.push_back(line); });
  EXPECT_TRUE(deadline.expired());
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.error().message, HasSubstr("no-such-host.invalid"));
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("no-such-host.invalid:29500 is unknown here"),
                                      HasSubstr("asking again for "))));
}

TEST_F(TcpStoreTest, ANameThatNobodyKnowsYetIsAskedForAgainByItsServer) {
  std::vector<std::string> told;
  const auto deadline = Deadline::after(milliseconds(1200));
  TcpStoreServer::Options options;
  options.endpoint = {"no-such-host.invalid", 0};
  options.warn = [&](const std::string& line) { told.push_back(line); };
  options.for_name = deadline;
  const auto unknown = TcpStoreServer::start(std::move(options));
  EXPECT_TRUE(deadline.expired());
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("no-such-host.invalid"));
  EXPECT_THAT(told, ElementsAre(HasSubstr("no-such-host.invalid:0 is unknown here")));
  EXPECT_FALSE(listen_at({"no-such-host.invalid", 0}).ok());
}

TEST_F(TcpStoreTest, WhereNobodyAnswersSomebodyHearsOfItMeanwhile) {
  serve(1);
  server_.reset();
  std::vector<std::string> told;
  const auto connection = connect_to(endpoint_, Deadline::after(milliseconds(400)),
                                     [&](const std::string& line) { told.push_back(line); });
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("nobody answers at 127.0.0.1:"),
                                      HasSubstr(" yet ("), HasSubstr("; trying for 1 s more"))));
}

TEST_F(TcpStoreTest, TheServerTellsWhoIsMissing) {
  std::promise<std::string> told;
  TcpStoreServer::Options options;
  options.endpoint.host = "127.0.0.1";
  options.size = 3;
  options.secret = "secret";
  options.warn = [&](const std::string& line) { told.set_value(line); };  // once, or it throws
  server_ = *TcpStoreServer::start(std::move(options));
  endpoint_ = {"127.0.0.1", server_->port()};
  const auto a = joined(0, 3);
  std::thread waiting(
      [&] { EXPECT_TRUE(a->exchange("hello", 0, 3, "0", Deadline::after(seconds(8))).ok()); });
  auto line = told.get_future();
  EXPECT_EQ(line.wait_for(seconds(20)), std::future_status::ready);
  EXPECT_THAT(line.get(), AllOf(HasSubstr("ranks 1, 2 of 3 have not come to port "),
                                HasSubstr(" yet; waiting for ")));
  const auto b = joined(1, 3);
  const auto c = joined(2, 3);
  std::thread second([&] { EXPECT_TRUE(b->exchange("hello", 1, 3, "1", later()).ok()); });
  EXPECT_TRUE(c->exchange("hello", 2, 3, "2", later()).ok());
  second.join();
  waiting.join();
}

TEST_F(TcpStoreTest, TheServerMakesRoomForItsRanks) {
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = std::min<rlim_t>(limit.rlim_max, 64);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  serve(500);
  rlimit now = {};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_GE(now.rlim_cur, std::min<rlim_t>(limit.rlim_max, 500));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(TcpStoreTest, WhatIsNoStoreIsToldFromOne) {
  auto listener = listen_at({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  endpoint_ = {"127.0.0.1", listener->port};
  UniqueDescriptor caller;  // which the stranger keeps
  std::thread stranger([&] {
    pollfd entry = {listener->fd.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 30000), 1);
    caller.reset(::accept(listener->fd.get(), nullptr, nullptr));
    ASSERT_TRUE(send_all(caller.get(), "SSH-2.0-OpenSSH_9.2\r\n", later()).ok());
  });
  const auto begun = std::chrono::steady_clock::now();
  const auto store = join(0, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(20)) << "by its first words";
  stranger.join();
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kMismatch);
  EXPECT_THAT(store.error().message, HasSubstr("no store of this kolo's version"));
}

TEST_F(TcpStoreTest, WhenARankLeavesThePortIsFreeForTheNextMeeting) {
  serve(3, false);
  const auto a = joined(0, 3);
  const auto b = joined(1, 3);
  const auto c = joined(2, 3);
  EXPECT_FALSE(TcpStoreServer::start({.endpoint = endpoint_}).ok()) << "all have come";
  c->leave();
  a->fail(later());  // the server has recorded both when this returns
  // The server drops its listener after the pass that took the shutdown notice; this pass is later.
  EXPECT_FALSE(b->exchange("a", 1, 3, "", later()).ok());
  const auto next = TcpStoreServer::start({.endpoint = endpoint_});
  EXPECT_TRUE(next.ok()) << next.error().message;
}

TEST(Endpoint, TextAndBack) {
  for (const Endpoint& endpoint :
       {Endpoint{"node1", 29500}, Endpoint{"10.0.0.1", 0}, Endpoint{"::1", 65535}}) {
    const auto parsed = parse_endpoint(to_text(endpoint));
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(*parsed, endpoint);
  }
  for (const char* text :
       {"", "node1", ":1", "node1:", "node1:65536", "node1:-1", "a:b:1", "n:1x"}) {
    EXPECT_FALSE(parse_endpoint(text).ok()) << text;
  }
  EXPECT_TRUE(is_loopback({"127.0.0.2", 1}));
  EXPECT_TRUE(is_loopback({"::1", 1}));
  EXPECT_TRUE(is_loopback({"localhost", 1}));
  EXPECT_FALSE(is_loopback({"10.0.0.1", 1}));
}

// FIPS 180-4's examples, and RFC 4231's test cases 2 and 6.
TEST(Secret, DigestsAreThoseOfTheStandards) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_NE(*random_bytes(16), *random_bytes(16));
  EXPECT_FALSE(equal_in_constant_time("ab", "ac"));
}

}  // namespace
}  // namespace kolo::tcp_store_test
