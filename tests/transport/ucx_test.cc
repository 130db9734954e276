// UCX against the conformance suite: ranks are threads of one process, each with its own context
// and worker. The tests under mpirun use it between processes.
#include "transport/ucx/ucx_transport.h"

#include "transport/ucx/ucx_fatal.h"

#include "tests/transport/transport_conformance.h"

#include <gmock/gmock.h>

#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace kolo::test {
namespace {

class UcxWorld final : public TransportWorld {
 public:
  UcxWorld(int size, const UcxOptions& options) {
    for (int rank = 0; rank < size; ++rank) {
      auto transport = make_ucx_transport(options);
      if (!transport.ok()) ADD_FAILURE() << transport.error().message;
      transports_.push_back(*std::move(transport));
    }
  }
  Transport& at(int rank) override { return *transports_[static_cast<std::size_t>(rank)]; }
  void close(int rank) override { transports_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
};

TransportMaker maker(const std::string& name, const UcxOptions& options) {
  return {.name = name,
          .make = [options](int size) { return std::make_unique<UcxWorld>(size, options); }};
}

TransportMaker host_with_rendezvous() {
  TransportMaker made = maker("rendezvous", {.host_rendezvous_from = 1});
  made.reads_end_with_fail_all = false;
  return made;
}

/// With error handling, UCX leaves out shared memory and takes TCP.
TransportMaker across_hosts() {
  TransportMaker made = maker("across_hosts", {});
  made.same_host = false;
  return made;
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance,
                         testing::Values(maker("host", {}), host_with_rendezvous(), across_hosts()),
                         [](const auto& made) { return made.param.name; });

/// Pipes between a child process and its parent, for use before they are connected.
struct Pipes {
  Pipes() {
    EXPECT_EQ(pipe(to_child), 0);
    EXPECT_EQ(pipe(to_parent), 0);
  }
  ~Pipes() {
    for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
  }
  static void write_text(int fd, const std::string& text) {
    const std::uint64_t size = text.size();
    EXPECT_EQ(write(fd, &size, sizeof(size)), static_cast<ssize_t>(sizeof(size)));
    EXPECT_EQ(write(fd, text.data(), size), static_cast<ssize_t>(size));
  }
  static std::string read_text(int fd) {
    std::uint64_t size = 0;
    if (read(fd, &size, sizeof(size)) != static_cast<ssize_t>(sizeof(size))) return {};
    std::string text(size, '\0');
    return read(fd, text.data(), size) == static_cast<ssize_t>(size) ? text : std::string();
  }
  int to_child[2] = {-1, -1};
  int to_parent[2] = {-1, -1};
};

/// One of two ranks, connected as if they were on one host, or on different ones.
std::unique_ptr<Transport> connect_as(int rank, bool same_host, int out, int in,
                                      TransportListener& listener, const Abort& abort) {
  auto transport = make_ucx_transport({});
  if (!transport.ok()) return nullptr;
  std::vector<Peer> peers(2);
  for (Peer& peer : peers) peer = {(*transport)->address(), same_host};
  Pipes::write_text(out, (*transport)->address());
  peers[static_cast<std::size_t>(1 - rank)].address = Pipes::read_text(in);
  const Status connected =
      (*transport)
          ->connect(rank, peers, listener, abort, Deadline::after(std::chrono::seconds(10)));
  return connected.ok() ? *std::move(transport) : nullptr;
}

struct Deaf final : TransportListener {
  void on_message(int, std::span<const std::byte>) override {}
  void on_peer_failed(int, const Error&) override {}
};

/// Rank 0's listener, which hears about rank 1.
struct Ears final : TransportListener {
  int messages = 0;
  std::vector<int> lost;
  void on_message(int, std::span<const std::byte>) override { ++messages; }
  void on_peer_failed(int peer, const Error& error) override {
    EXPECT_EQ(error.code, ErrorCode::kPeerLost);
    EXPECT_THAT(error.message, testing::HasSubstr("rank 1's connection"));
    lost.push_back(peer);
  }
};

/// Rank 0 here, and rank 1 in a child process, which has said a word and only moves.
struct Pair {
  explicit Pair(bool same_host) {
    EXPECT_GE(child, 0);
    if (child == 0) {
      Deaf deaf;
      const auto own = connect_as(1, same_host, pipes.to_parent[1], pipes.to_child[0], deaf, abort);
      static_cast<void>(own->post_message(0, {}));
      while (true) own->progress();  // until it is killed
    }
    transport = connect_as(0, same_host, pipes.to_child[1], pipes.to_parent[0], ears, abort);
    if (transport == nullptr) return;
    self.emplace(0, 2, *transport, meeting);
    EXPECT_TRUE(self->post(1, "hello").ok());
    self->wait([this] { return ears.messages == 1; }, "the child was there");
  }
  void kill_child() const {
    EXPECT_EQ(kill(child, SIGKILL), 0);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }

  Pipes pipes;
  const Abort abort;
  Ears ears;
  std::atomic<int> meeting = 0;
  const pid_t child = fork();
  std::unique_ptr<Transport> transport;
  std::optional<ConformanceRank> self;  // nothing if the two did not connect
};

TEST(UcxTest, NothingWaitsForAKilledPeerOfThisHostThatIsForgotten) {
  Pair ranks(/*same_host=*/true);
  ASSERT_TRUE(ranks.self);
  // It does not read.
  const std::vector<std::byte> data(std::size_t{8} << 20);
  const Transfer& sent = ranks.self->send(1, tag(0), data);
  ranks.kill_child();
  Transport& transport = *ranks.transport;
  EXPECT_EQ(
      transport.flush(ranks.abort, Deadline::after(std::chrono::milliseconds(50))).error().code,
      ErrorCode::kTimeout);
  transport.forget(1);
  EXPECT_TRUE(transport.flush(ranks.abort, Deadline::after(std::chrono::hours(1))).ok());
  EXPECT_EQ(sent.state(), Transfer::State::kPending);
  transport.fail_all({.code = ErrorCode::kPeerLost, .message = "the child is gone"});
  EXPECT_EQ(sent.state(), Transfer::State::kFailed);
}

TEST(UcxTest, AKilledPeerAcrossHostsIsReportedOnce) {
  Pair ranks(/*same_host=*/false);
  ASSERT_TRUE(ranks.self);
  ranks.kill_child();
  const std::vector<int>& lost = ranks.ears.lost;
  ranks.self->wait([&lost] { return !lost.empty(); }, "the child was missed");
  for (int i = 0; i < 1000; ++i) ranks.transport->progress();
  EXPECT_THAT(lost, testing::ElementsAre(1));
  std::vector<std::byte> data(100);
  EXPECT_TRUE(ranks.self->post(1, "into the void").ok());
  EXPECT_EQ(ranks.self->send(1, tag(0), data).status().error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(ranks.self->receive(1, tag(0), data).status().error().code, ErrorCode::kPeerLost);
}

/// Ranks 0 and 1 connect and move by turns, `together` steps, then only `last` moves, `alone`
/// steps, until rank 1 is killed. Returns if rank 0 has heard of it.
bool hears_of_a_peer_killed_while_it_connects(int together, int last, int alone) {
  Pipes pipes;
  const Abort abort;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Deaf deaf;
    const auto transport = connect_as(1, false, pipes.to_parent[1], pipes.to_child[0], deaf, abort);
    static_cast<void>(transport->post_message(0, {}));
    Pipes::write_text(pipes.to_parent[1], "connecting");
    while (true) {  // until it or rank 0 is killed
      Pipes::read_text(pipes.to_child[0]);
      transport->progress();
      Pipes::write_text(pipes.to_parent[1], "moved");
    }
  }
  Ears ears;
  const auto transport = connect_as(0, false, pipes.to_child[1], pipes.to_parent[0], ears, abort);
  Pipes::read_text(pipes.to_parent[0]);
  const auto move = [&](int rank) {
    if (rank == 0) {
      transport->progress();
    } else {
      Pipes::write_text(pipes.to_child[1], "move");
      Pipes::read_text(pipes.to_parent[0]);
    }
  };
  for (int step = 0; step < together; ++step) {
    move(0);
    move(1);
  }
  for (int step = 0; step < alone; ++step) move(last);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (ears.lost.empty() && !deadline.expired()) transport->progress();
  return !ears.lost.empty();
}

// UCX 1.13 ends the process whose answer to a connecting rank waits for a connection of its own, if
// that rank goes away.
TEST(UcxTest, ARankOutlivesAPeerThatIsKilledWhileItConnects) {
  for (int together = 0; together < 16; ++together) {
    for (const int last : {0, 1}) {
      for (const int alone : {0, 1, 2, 10}) {
        const pid_t survivor = fork();
        ASSERT_GE(survivor, 0);
        if (survivor == 0)
          _exit(hears_of_a_peer_killed_while_it_connects(together, last, alone) ? 0 : 1);
        int status = 0;
        ASSERT_EQ(waitpid(survivor, &status, 0), survivor);
        EXPECT_EQ(status, 0) << together << " steps together, then " << alone << " of rank " << last
                             << " alone";
      }
    }
  }
}

bool hears_of_a_rank_that_is_gone() {
  Pipes pipes;
  const pid_t child = fork();
  if (child == 0) {
    const auto there = make_ucx_transport({});
    Pipes::write_text(pipes.to_parent[1], (*there)->address());
    _exit(0);
  }
  const std::string address = Pipes::read_text(pipes.to_parent[0]);
  waitpid(child, nullptr, 0);
  const auto transport = make_ucx_transport({});
  struct Loss final : TransportListener {
    int lost = -1;
    void on_message(int, std::span<const std::byte>) override {}
    void on_peer_failed(int peer, const Error&) override { lost = peer; }
  } loss;
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  const std::vector<Peer> peers{{(*transport)->address(), false}, {address, false}};
  if (!(*transport)->connect(0, peers, loss, Abort(), deadline).ok()) return false;
  while (loss.lost < 0 && !deadline.expired()) (*transport)->progress();
  return loss.lost == 1;
}

// In a process of its own: its transport leaves UCX's thread, whose descriptors a later child would
// share.
TEST(UcxTest, ARankThatIsGoneBeforeItIsConnectedToIsReported) {
  EXPECT_EXIT(_exit(hears_of_a_rank_that_is_gone() ? 0 : 1), testing::ExitedWithCode(0), "");
}

// libucp looks for the function in the same order.
TEST(UcxTest, AFailedAssertionOfUcxReturnsToTheCaller) {
  const auto fatal =
      reinterpret_cast<void (*)(const char*, unsigned, const char*, const char*, ...)>(
          dlsym(RTLD_DEFAULT, "ucs_fatal_error_format"));
  ASSERT_NE(fatal, nullptr);
  int calls = 0;
  const auto assert_nested = [&] {
    ++calls;
    EXPECT_FALSE(outlive_ucx([&] { fatal("a/b.c", 7, "f", "Assertion `%s' failed", "x"); }));
    ++calls;
  };
  EXPECT_EQ(outlive_ucx(assert_nested), "b.c:7 Assertion `x' failed");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(outlive_ucx([&] { ++calls; }), std::nullopt);
  EXPECT_EQ(calls, 2);
  EXPECT_EXIT(fatal("a/b.c", 7, "f", "Assertion `%s' failed", "x"),
              testing::KilledBySignal(SIGABRT), "Assertion `x' failed");
}

// It has done its part, and leaving harms nobody.
TEST(UcxTest, WhatARankSentBeforeItLeftIsReceivedAfterwards) {
  Pipes pipes;
  std::atomic<int> meeting = 0;
  const Abort abort;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Deaf deaf;
    const auto transport = connect_as(1, false, pipes.to_parent[1], pipes.to_child[0], deaf, abort);
    const std::vector<std::byte> data(100, std::byte{7});
    ConformanceRank self(1, 2, *transport, meeting);
    self.send(0, tag(0), data);
    static_cast<void>(transport->post_message(0, {}));  // comes after it
    while (true) transport->progress();                 // until it is killed
  }
  Ears ears;
  const auto transport = connect_as(0, false, pipes.to_child[1], pipes.to_parent[0], ears, abort);
  ASSERT_NE(transport, nullptr);
  ConformanceRank self(0, 2, *transport, meeting);
  self.wait([&ears] { return ears.messages == 1; }, "the child has sent");
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(self.post(1, "who notices").ok());
  self.wait([&ears] { return ears.lost.size() == 1; }, "the child was missed");
  std::vector<std::byte> data(100);
  const Status received = self.receive(1, tag(0), data).status();
  EXPECT_TRUE(received.ok()) << received.error().message;
  EXPECT_THAT(data, testing::Each(std::byte{7}));
  EXPECT_EQ(self.receive(1, tag(1), data).status().error().code, ErrorCode::kPeerLost);
}

// Without a connection, UCX would later complain that the rank's memory is gone, and a good job
// would end with errors.
TEST(UcxTest, ARankOfThisHostIsConnectedToBeforeItMayGo) {
  Pipes pipes;
  std::atomic<int> meeting = 0;
  const Abort abort;
  Deaf deaf;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto there = connect_as(1, true, pipes.to_parent[1], pipes.to_child[0], deaf, abort);
    Pipes::read_text(pipes.to_child[0]);
    _exit(0);
  }
  const auto transport = connect_as(0, true, pipes.to_child[1], pipes.to_parent[0], deaf, abort);
  ASSERT_NE(transport, nullptr);
  EXPECT_FALSE(transport->activity(1).opened) << "nothing was sent";
  Pipes::write_text(pipes.to_child[1], "go");
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  ConformanceRank self(0, 2, *transport, meeting);
  EXPECT_TRUE(self.post(1, "into the void").ok());
  EXPECT_TRUE(transport->activity(1).opened);
}

/// Rank 1's answer to its first message does not leave before rank 0 takes part.
void close_while_answering(int steps) {
  UcxWorld world(2, {});
  std::atomic<int> meeting = 0;
  ConformanceRank zero(0, 2, world.at(0), meeting);
  ConformanceRank one(1, 2, world.at(1), meeting);
  const std::vector<Peer> peers{{world.at(0).address(), false}, {world.at(1).address(), false}};
  for (ConformanceRank* each : {&zero, &one}) {
    ASSERT_TRUE(
        each->transport.connect(each->rank, peers, *each, each->abort, Deadline::never()).ok());
  }
  EXPECT_TRUE(zero.post(1, "hello").ok());
  for (int step = 0; step < steps; ++step) {
    zero.transport.progress();
    one.transport.progress();
  }
  world.close(1);
  world.close(0);
}

// UCX before 1.14 ends the process when it destroys a worker with such an answer.
TEST(UcxTest, ARankMayLeaveWhileAnotherConnectsToIt) {
  for (int steps = 0; steps < 12; ++steps) close_while_answering(steps);
}

TEST(UcxTest, SaysWhichVersionAndTransports) {
  const auto transport = make_ucx_transport({});
  ASSERT_TRUE(transport.ok()) << transport.error().message;
  EXPECT_THAT((*transport)->description(),
              testing::MatchesRegex("ucx [0-9]+\\.[0-9]+\\.[0-9]+ \\(able to use .*tcp.*\\)"));
}

// UCX chooses the transport from the error handling; see ucx_transport_impl.h.
TEST(UcxTest, SharedMemoryInsideAHostAndTcpAcross) {
  for (const bool same_host : {true, false}) {
    UcxWorld world(2, {});
    std::atomic<int> meeting = 0;
    ConformanceRank zero(0, 2, world.at(0), meeting);
    ConformanceRank one(1, 2, world.at(1), meeting);
    const std::vector<Peer> peers{{world.at(0).address(), same_host},
                                  {world.at(1).address(), same_host}};
    for (ConformanceRank* each : {&zero, &one}) {
      ASSERT_TRUE(
          each->transport.connect(each->rank, peers, *each, each->abort, Deadline::never()).ok());
    }
    EXPECT_TRUE(zero.post(1, "hello").ok());
    zero.wait(
        [&] {
          one.transport.progress();
          return one.messages.size() == 1;
        },
        "hello arrived");
    EXPECT_THAT(zero.transport.description(),
                testing::ContainsRegex(same_host ? "\\(.*(posix|sysv)" : "\\(tcp\\)"));
  }
}

// One line with UCX's own message, which is otherwise printed only on request.
TEST(UcxTest, ATransportThatUcxLacksIsAnError) {
  for (const bool shows_log : {false, true}) {
    testing::internal::CaptureStderr();
    const auto transport =
        make_ucx_transport({.transports = "no_such_transport", .shows_log = shows_log});
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_FALSE(transport.ok());
    EXPECT_THAT(transport.error().message,
                testing::HasSubstr("(UCX: no usable transports/devices"));
    EXPECT_EQ(log.find("UCX ERROR") != std::string::npos, shows_log) << log;
  }
}

}  // namespace
}  // namespace kolo::test
