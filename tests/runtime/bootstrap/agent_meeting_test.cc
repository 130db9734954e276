// Rendezvous under torchrun's agent: through its store, and at the next port if the first is no
// store.
#include "runtime/bootstrap/agent_meeting.h"
#include "runtime/base/check.h"
#include "runtime/bootstrap/rendezvous.h"
#include "tests/runtime/bootstrap/fake_agent.h"
#include "tests/runtime/bootstrap/free_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

namespace kolo::agent_meeting_test {
namespace {

using std::chrono::milliseconds;
using test::FakeAgent;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Deadline later() { return Deadline::after(std::chrono::seconds(30)); }
Deadline soon() { return Deadline::after(milliseconds(100)); }

RendezvousMethod way_of(int rank, const Endpoint& agent, const Endpoint& next) {
  RendezvousMethod way;
  way.meeting = Meeting::kTcp;
  way.rank = rank;
  way.size = 2;
  way.agent = agent;
  way.agent_key = "kolo/job/0";
  way.endpoint = next;
  return way;
}

Status meet_and_leave(int rank, const Endpoint& agent, const std::string& secret = "",
                      Deadline deadline = later(), const Endpoint& next = {}) {
  const Environment nothing(Environment::Variables{});
  KOLO_ASSIGN(auto bootstrap,
              meet(way_of(rank, agent, next), {.secret = secret}, nothing, deadline));
  KOLO_ASSIGN(const auto all, bootstrap->exchange("hello", std::to_string(rank), deadline));
  EXPECT_THAT(all, ::testing::ElementsAre("0", "1"));
  bootstrap->leave(true, deadline);
  return {};
}

void expect_to_meet(const Endpoint& agent, const std::string& secret = "",
                    const Endpoint& next = {}) {
  std::thread other([&] {
    const Status met = meet_and_leave(1, agent, secret, later(), next);
    EXPECT_TRUE(met.ok()) << met.error().message;
  });
  const Status met = meet_and_leave(0, agent, secret, later(), next);
  EXPECT_TRUE(met.ok()) << met.error().message;
  other.join();
}

TEST(AgentMeeting, RankZeroPublishesWhereItListens) {
  FakeAgent agent;
  expect_to_meet(agent.endpoint());
  const std::string made = agent.get("kolo/job/0");
  EXPECT_THAT(made, AllOf(StartsWith("kolo 1 "), HasSubstr(" 127.0.0.1:")));
  expect_to_meet(agent.endpoint(), "mine");
  EXPECT_NE(agent.get("kolo/job/0"), made);
  EXPECT_THAT(agent.get("kolo/job/0"), Not(HasSubstr("mine")));
}

/// Rank 1 meets something at a former address before rank 0 announces the next one.
void expect_to_meet_after(FakeAgent& agent, const std::function<void()>& rank_1_is_there,
                          const std::string& secret) {
  std::thread early([&] {
    const Status met = meet_and_leave(1, agent.endpoint(), secret);
    EXPECT_TRUE(met.ok()) << met.error().message;
  });
  rank_1_is_there();
  const Status met = meet_and_leave(0, agent.endpoint(), secret);
  EXPECT_TRUE(met.ok()) << met.error().message;
  early.join();
}

TEST(AgentMeeting, APlaceThatAFormerMeetingLeftIsGivenUpForTheNewOne) {
  FakeAgent agent;
  const auto gone = listen_at({"127.0.0.1", 0});
  ASSERT_TRUE(gone.ok());
  const std::string old = "kolo 1 00ff 127.0.0.1:" + std::to_string(gone->port);
  agent.set("kolo/job/0", old);
  std::thread other([&] {
    const Status met = meet_and_leave(1, agent.endpoint());
    EXPECT_TRUE(met.ok()) << met.error().message;
  });
  // The stranger at the old address hangs up on rank 1 once the new address is announced.
  pollfd entry = {gone->fd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 30000), 1);
  UniqueDescriptor caller(::accept(gone->fd.get(), nullptr, nullptr));
  std::thread first([&] {
    const Status met = meet_and_leave(0, agent.endpoint());
    EXPECT_TRUE(met.ok()) << met.error().message;
  });
  while (agent.get("kolo/job/0") == old) std::this_thread::yield();
  caller.reset();
  first.join();
  other.join();
}

std::unique_ptr<TcpStoreServer> serve(const std::string& name, const std::string& meeting,
                                      const std::string& secret = "") {
  TcpStoreServer::Options options;
  options.endpoint.host = "127.0.0.1";
  options.size = 2;
  options.size_by = name;
  options.secret = meeting + secret;
  options.meeting = meeting;
  auto server = TcpStoreServer::start(std::move(options));
  EXPECT_TRUE(server.ok());
  return *std::move(server);
}

std::string place_of(const TcpStoreServer& server, const std::string& meeting) {
  return fmt::format("kolo 1 {} 127.0.0.1:{}", meeting, server.port());
}

// Rank 0 has also heard of the refusal and has gone on to its next rendezvous.
TEST(AgentMeeting, WhoWasRefusedHearsSoAlthoughTheNextPlaceIsTold) {
  FakeAgent agent;
  const auto first = serve("the first", "00ff");
  const auto second = serve("the second", "ff00");
  agent.set("kolo/job/0", place_of(*first, "00ff"));
  agent.set_next("kolo/job/0", place_of(*second, "ff00"));
  RendezvousMethod way = way_of(1, agent.endpoint(), {});
  way.size = 3;
  const auto met = meet(way, {}, Environment(Environment::Variables{}), later());
  ASSERT_FALSE(met.ok());
  EXPECT_THAT(met.error().message, HasSubstr("says 3, the first says 2"));
}

// A job of the same user with the same secret may have the port of a former rendezvous.
TEST(AgentMeeting, ARankWaitsForTheNextPlaceWhereAnotherJobHasTheFormerOne) {
  FakeAgent agent;
  const auto other = serve("the other", "aaaa", "mine");
  agent.set("kolo/job/0", place_of(*other, "00ff"));
  const auto rank_1_is_there = [&] {
    while (other->warnings().empty()) std::this_thread::yield();
  };
  expect_to_meet_after(agent, rank_1_is_there, "mine");
}

TEST(AgentMeeting, ARankWaitsForTheNextPlaceWhereSomethingSilentHasTheFormerOne) {
  FakeAgent agent;
  const auto silent = listen_at({"127.0.0.1", 0});
  ASSERT_TRUE(silent.ok());
  agent.set("kolo/job/0", "kolo 1 00ff 127.0.0.1:" + std::to_string(silent->port));
  UniqueDescriptor caller;
  const auto rank_1_is_there = [&] {
    pollfd entry = {silent->fd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 30000), 1);
    caller.reset(::accept(silent->fd.get(), nullptr, nullptr));
  };
  expect_to_meet_after(agent, rank_1_is_there, "");
}

TEST(AgentMeeting, WhyRankZeroCannotMeetIsTold) {
  FakeAgent agent;
  auto store = AgentStore::connect(agent.endpoint(), later());
  ASSERT_TRUE(store.ok());
  const Error why = KOLO_ERROR(kInvalidArgument, "cannot listen at here:1");
  ASSERT_TRUE(refuse_by_agent(*store, "kolo/job/0", why, later()).ok());
  const Status met = meet_and_leave(1, agent.endpoint());
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(met.error().message,
              AllOf(StartsWith("rank 1 (pid "), HasSubstr("rank 0 cannot listen at here:1")));
  // That of an earlier meeting: a place may follow.
  const auto server = serve("rank 0", "00ff");
  agent.set_next("kolo/job/0", place_of(*server, "00ff"));
  RendezvousMethod way = way_of(1, agent.endpoint(), {});
  way.size = 3;
  const auto next = meet(way, {}, Environment(Environment::Variables{}), later());
  EXPECT_THAT(next.error().message, HasSubstr("says 3, rank 0 says 2"));
}

TEST(AgentMeeting, ARankZeroThatPublishesNothingIsNamed) {
  FakeAgent agent;
  const Status met = meet_and_leave(1, agent.endpoint(), "", soon());
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(met.error().message, AllOf(StartsWith("rank 1 (pid "), HasSubstr("rank 0 did not"),
                                         HasSubstr(to_text(agent.endpoint()))));
}

TEST(AgentMeeting, APlaceWhereNobodyListensIsNamed) {
  FakeAgent agent;
  const std::string place = "127.0.0.1:" + std::to_string(test::free_port());
  agent.set("kolo/job/0", "kolo 1 00ff " + place);
  std::string message;
  // With a short deadline, the agent's answer may take all the time on a busy machine.
  for (const milliseconds time : {milliseconds(100), milliseconds(5000)}) {
    const Status met = meet_and_leave(1, agent.endpoint(), "", Deadline::after(time));
    ASSERT_FALSE(met.ok());
    EXPECT_EQ(met.error().code, ErrorCode::kTimeout);
    message = met.error().message;
    if (message.find(place) != message.npos) break;
  }
  EXPECT_THAT(message, AllOf(HasSubstr(place), HasSubstr("rank 0 still runs")));
}

TEST(AgentMeeting, AnotherSecretAndAnotherProgramsValueAreErrors) {
  FakeAgent agent;
  const auto server = serve("rank 0", "00ff", "mine");
  agent.set("kolo/job/0", place_of(*server, "00ff"));
  const auto begun = std::chrono::steady_clock::now();
  const Status other = meet_and_leave(1, agent.endpoint(), "another");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("KOLO_SECRET"));
  // The error is just as clear to a rank that knows no agent.
  const auto stranger =
      TcpStore::join({"127.0.0.1", server->port()}, {1, 2, "stranger"}, "another", later());
  ASSERT_FALSE(stranger.ok());
  EXPECT_THAT(stranger.error().message, HasSubstr("KOLO_SECRET"));
  // Without the patience that others are met with.
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(8));
  for (const char* value : {"", "kolo 1", "kolo 1 ", "kolo 1 x", "kolo 2 x a:1", "kolo 1 x a:b"}) {
    agent.set("kolo/job/0", value);
    const Status met = meet_and_leave(1, agent.endpoint());
    ASSERT_FALSE(met.ok()) << value;
    EXPECT_NE(met.error().code, ErrorCode::kTimeout) << value;
  }
}

// What a rank reports when a program of another kind answers.
TEST(AgentMeeting, WhatIsNoAgentIsFoundOutSoon) {
  for (const std::string& answer :
       {std::string("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string("x")}) {
    FakeAgent stranger(answer);
    const auto store = AgentStore::connect(stranger.endpoint(), later());
    ASSERT_FALSE(store.ok());
    EXPECT_NE(store.error().code, ErrorCode::kTimeout) << store.error().message;
  }
  const auto silent = listen_at({"127.0.0.1", 0});
  ASSERT_TRUE(silent.ok());
  const auto store = AgentStore::connect({"127.0.0.1", silent->port}, soon());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kTimeout);
}

TEST(AgentMeeting, WithoutAnAgentRanksMeetAtTheNextPort) {
  FakeAgent stranger("what?");
  expect_to_meet(stranger.endpoint(), "", {"127.0.0.1", test::free_port()});
}

TEST(AgentStore, HugeValuesAreRefused) {
  FakeAgent agent;
  agent.set("k", std::string(5000, 'x'));
  auto store = AgentStore::connect(agent.endpoint(), later());
  ASSERT_TRUE(store.ok()) << store.error().message;
  EXPECT_EQ(store->get("k", later()).error().code, ErrorCode::kMismatch);
}

}  // namespace
}  // namespace kolo::agent_meeting_test
