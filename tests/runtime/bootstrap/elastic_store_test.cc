// The store of an elastic job: processes come to it, and get their places in one world after the
// other.
#include "runtime/bootstrap/store_wire.h"
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/tcp_store_server.h"
#include "tests/support/deadlines.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace kolo {
namespace {

using testing::HasSubstr;
using World = TcpStore::World;

std::string text_of(const Result<World>& world) {
  if (!world.ok()) return world.error().message;
  return fmt::format("world {}: {} of {}", world->generation, world->rank, world->size);
}

class ElasticStore : public testing::Test {
 protected:
  void serve(int processes, int least, std::chrono::seconds patience = {}) {
    auto started = TcpStoreServer::start({.endpoint = {"127.0.0.1", 0},
                                          .secret = "secret",
                                          .least = least,
                                          .patience = patience,
                                          .nodes = 2,
                                          .slots = 2});
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = *std::move(started);
    for (int process = 0; process < processes; ++process) server_->note_start(process);
  }

  std::unique_ptr<TcpStore> lifeline(int process) {
    auto store = joined(process);
    store->be_lifeline();
    // Requests are taken in turn, so the answer to this one follows.
    EXPECT_TRUE(store->newcomers(later()).ok());
    return store;
  }

  std::unique_ptr<TcpStore> joined(int process) {
    auto store = TcpStore::join({"127.0.0.1", server_->port()},
                                {process, process + 1, fmt::format("process {}", process)},
                                "secret", later());
    EXPECT_TRUE(store.ok()) << store.error().message;
    return store.ok() ? *std::move(store) : nullptr;
  }

  /// Asks for a world, and reports it in `text`. The connection stays.
  std::future<std::string> asks(TcpStore& store, bool is_new, Deadline deadline = later()) {
    return std::async(std::launch::async, [&store, is_new, deadline] {
      return text_of(store.next_world(is_new, deadline));
    });
  }

  /// Processes 0 and 1 are in the first world.
  void meet() {
    a_ = joined(0);
    b_ = joined(1);
    auto first = asks(*a_, true);
    EXPECT_EQ(text_of(b_->next_world(true, later())), "world 1: 1 of 2");
    EXPECT_EQ(first.get(), "world 1: 0 of 2");
  }

  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStore> a_;
  std::unique_ptr<TcpStore> b_;
};

TEST_F(ElasticStore, AllMeetInTheFirstWorldAndExchangeThere) {
  serve(2, 1);
  meet();
  auto mine = std::async(std::launch::async, [&] { return a_->exchange("x", 0, 2, "A", later()); });
  const auto all = b_->exchange("x", 1, 2, "B", later());
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(*all, (Gathered{"A", "B"}));
  EXPECT_TRUE(mine.get().ok());
}

TEST_F(ElasticStore, ANewProcessIsAloneUntilTheOthersLetItIn) {
  serve(1, 1);
  const auto a = joined(0);
  EXPECT_EQ(text_of(a->next_world(true, later())), "world 1: 0 of 1");
  a->leave();
  server_->note_start(1);
  const auto b = joined(1);
  EXPECT_EQ(text_of(b->next_world(true, later())), "world 0: 0 of 1");
  const auto asking = joined(0);
  EXPECT_EQ(*asking->newcomers(later()), 0);
  EXPECT_TRUE(server_->is_elastic()) << "somebody has asked";
  auto waits = asks(*b, false);
  while (*asking->newcomers(later()) == 0) {
  }
  const auto again = joined(0);
  EXPECT_EQ(text_of(again->next_world(false, later())), "world 2: 0 of 2");
  EXPECT_EQ(waits.get(), "world 2: 1 of 2");
}

TEST_F(ElasticStore, AWorldIsMadeWhenTheLauncherHasSeenTheMissingProcessEnd) {
  serve(3, 2);
  std::vector<std::unique_ptr<TcpStore>> stores;
  std::vector<std::future<std::string>> first;
  for (int process = 0; process < 3; ++process) stores.push_back(joined(process));
  for (const auto& store : stores) first.push_back(asks(*store, true));
  for (auto& text : first) EXPECT_THAT(text.get(), HasSubstr("world 1"));
  const auto b = joined(1);
  const auto c = joined(2);
  auto of_b = asks(*b, false);
  auto of_c = asks(*c, false);
  while (server_->late(std::chrono::seconds(0)) != std::vector{0}) {
  }
  server_->note_end(0, false);
  EXPECT_EQ(of_b.get(), "world 2: 0 of 2");
  EXPECT_EQ(of_c.get(), "world 2: 1 of 2");
  EXPECT_TRUE(server_->is_in_world(2));
  EXPECT_FALSE(server_->is_in_world(0));
}

TEST_F(ElasticStore, AProcessEndsWithItsLifeline) {
  serve(2, 1, std::chrono::hours(1));
  meet();
  const auto of_a = lifeline(0);
  auto of_b = lifeline(1);
  const auto next = joined(0);
  auto waits = asks(*next, false);
  of_b.reset();
  EXPECT_EQ(waits.get(), "world 2: 0 of 1");
  EXPECT_EQ(server_->has_succeeded(), false);
  of_a->leave();
  while (server_->has_succeeded() != true) {
  }
  EXPECT_THAT(text_of(joined(1)->next_world(false, later())),
              HasSubstr("kolo-run has taken process 1 for lost"));
}

TEST_F(ElasticStore, AProcessWithALifelineThatDoesNotComeIsLeftBehind) {
  serve(2, 1, std::chrono::seconds(1));
  meet();
  const auto of_b = lifeline(1);
  EXPECT_EQ(text_of(joined(0)->next_world(false, later())), "world 2: 0 of 1");
  EXPECT_THAT(text_of(joined(1)->next_world(false, later())),
              HasSubstr("kolo-run has taken process 1 for lost"));
}

TEST_F(ElasticStore, AProcessThatIsLeftBehindKeepsNobodyAfterTheOthersHaveEnded) {
  serve(2, 1, std::chrono::seconds(1));
  meet();
  const auto of_a = lifeline(0);
  const auto of_b = lifeline(1);  // stopped for ever
  EXPECT_EQ(text_of(joined(0)->next_world(false, later())), "world 2: 0 of 1");
  EXPECT_FALSE(server_->has_lost_all());
  of_a->leave();
  while (!server_->has_lost_all()) {
  }
  EXPECT_EQ(server_->has_succeeded(), true);
}

TEST_F(ElasticStore, WithLifelinesNobodyWaitsForAWorldThatCannotBe) {
  serve(2, 2, std::chrono::hours(1));
  meet();
  auto of_b = lifeline(1);
  const auto next = joined(0);
  auto waits = asks(*next, false);
  of_b.reset();
  EXPECT_THAT(waits.get(), HasSubstr("1 of at least 2 processes (kolo-run --min-np) are left"));
}

TEST_F(ElasticStore, WithoutElasticTrainingEachProcessMustEndInOrder) {
  serve(2, 1, std::chrono::hours(1));
  EXPECT_EQ(server_->has_succeeded(), std::nullopt);
  meet();
  for (const int process : {0, 1}) {
    EXPECT_EQ(server_->has_succeeded(), false);
    const auto store = joined(process);
    store->be_lifeline();
    store->leave();
  }
  while (server_->has_succeeded() != true) {
  }
}

TEST_F(ElasticStore, WhoWaitsInVainHearsWhy) {
  serve(2, 2);
  const auto a = joined(0);
  EXPECT_THAT(text_of(a->next_world(true, soon())), HasSubstr("processes 1 did not come"));
  server_->note_end(1, false);
  EXPECT_THAT(text_of(a->next_world(true, soon())),
              HasSubstr("1 more processes are needed for the smallest one (kolo-run --min-np)"));
}

TEST_F(ElasticStore, AProcessThatTheLauncherTakesForLostIsInNoWorldAnyMore) {
  serve(2, 1);
  meet();
  const auto waiting = joined(1);
  auto of_b = asks(*waiting, false);
  while (server_->late(std::chrono::seconds(0)) != std::vector{0}) {
  }
  server_->note_end(1, false);
  EXPECT_THAT(of_b.get(), HasSubstr("kolo-run has taken process 1 for lost"));
  const auto again = joined(0);
  EXPECT_EQ(text_of(again->next_world(false, later())), "world 2: 0 of 1");
  const auto late = joined(1);
  EXPECT_THAT(text_of(late->next_world(false, later())), HasSubstr("kolo-run has taken process 1"));
  EXPECT_EQ(server_->members(), std::vector{0});
}

TEST_F(ElasticStore, WhatDoesNotBelongToAWorldIsRefused) {
  serve(1, 1);
  const auto a = joined(0);
  EXPECT_THAT(a->set("key", "value").error().message, HasSubstr("a process that is in no world"));
  EXPECT_EQ(text_of(a->next_world(true, later())), "world 1: 0 of 1");
  EXPECT_TRUE(a->set("key", "value").ok());
  EXPECT_FALSE(a->next_world(false, later()).ok()) << "it is in a world's meeting";
}

using NodeEvent = TcpStoreServer::NodeEvent;

class NodesOfAStore : public ElasticStore {
 protected:
  /// Node 1's launcher.
  UniqueDescriptor node() {
    const auto store = joined(1);
    auto link = store->join_as_node(1, 2, later());
    EXPECT_TRUE(link.ok()) << link.error().message;
    return *std::move(link);
  }

  NodeEvent next_event() {
    std::vector<NodeEvent> events;
    const Deadline deadline = later();
    while (events.empty() && !deadline.expired()) events = server_->take_node_events();
    EXPECT_EQ(events.size(), 1U);
    return events.empty() ? NodeEvent() : events.front();
  }
};

TEST_F(NodesOfAStore, AnEndThatANodeTellsCountsAtOnce) {
  serve(2, 1);
  server_->note_start(1, 1);
  meet();
  const UniqueDescriptor link = node();
  EXPECT_EQ(next_event().kind, NodeEvent::Kind::kCame);
  ASSERT_TRUE(send_all(link.get(), to_frame({"ended", "1", "0", "how"}), later()).ok());
  // The other one has a world at once, though nobody has taken the event.
  EXPECT_EQ(text_of(joined(0)->next_world(false, later())), "world 2: 0 of 1");
  const NodeEvent event = next_event();
  EXPECT_EQ(event.kind, NodeEvent::Kind::kEnded);
  EXPECT_EQ(event.numbers, std::vector<int>{1});
  EXPECT_EQ(event.told, Fields{"how"});
  EXPECT_TRUE(event.was_in_world);
}

TEST_F(NodesOfAStore, ProcessesEndWithTheirNode) {
  serve(2, 1);
  server_->note_start(1, 1);
  meet();
  UniqueDescriptor link = node();
  static_cast<void>(next_event());
  link.reset();
  EXPECT_EQ(text_of(joined(0)->next_world(false, later())), "world 2: 0 of 1");
  const NodeEvent event = next_event();
  EXPECT_EQ(event.kind, NodeEvent::Kind::kGone);
  EXPECT_EQ(event.numbers, std::vector<int>{1});
  const UniqueDescriptor again = node();
  EXPECT_EQ(next_event().kind, NodeEvent::Kind::kCame);
}

TEST_F(NodesOfAStore, ANodeGetsItsFramesAndNoSecondOneComes) {
  serve(1, 1);
  const UniqueDescriptor link = node();
  server_->tell_node(2, {"for another one"});
  server_->tell_node(1, {"start", "7"});
  std::string in;
  std::optional<Fields> frame;
  while (!frame) {
    const auto got = receive_some(link.get(), later());
    ASSERT_TRUE(got.ok()) << got.error().message;
    in += *got;
    const auto taken = take_frame(in, kRequestLimit);
    ASSERT_TRUE(taken.ok());
    frame = *taken;
  }
  EXPECT_EQ(*frame, (Fields{"start", "7"}));
  const auto again = joined(1)->join_as_node(1, 2, later());
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("a kolo-run of node 1 is there already"));
  const auto third = joined(2)->join_as_node(2, 2, later());
  ASSERT_FALSE(third.ok());
  EXPECT_THAT(third.error().message, HasSubstr("node 0 is one of 2 nodes with 2 each"));
}

}  // namespace
}  // namespace kolo
