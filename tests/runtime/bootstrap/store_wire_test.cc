// The protocol between the store's two ends: framing, a side that says nothing, and that arbitrary
// bytes do no harm, before the hello or after it.
#include "runtime/bootstrap/store_wire.h"
#include "runtime/bootstrap/tcp_store.h"
#include "runtime/bootstrap/tcp_store_server.h"
#include "tests/support/deadlines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace kolo::store_wire_test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(StoreWire, FramesComeWholeOrNotAtAll) {
  const Fields fields = {"exchange", "", std::string(300, '\0'), "7"};
  const std::string frame = to_frame(fields);
  std::string buffer;
  for (const char byte : frame + frame) {
    const auto early = take_frame(buffer, 1 << 20);
    ASSERT_TRUE(early.ok());
    if (*early) {
      EXPECT_EQ(**early, fields);
    }
    buffer += byte;
  }
  EXPECT_EQ(**take_frame(buffer, 1 << 20), fields);
  EXPECT_TRUE(buffer.empty());
}

TEST(StoreWire, EqualValuesTravelOnce) {
  EXPECT_EQ(to_runs(Gathered(32768, "")).size(), 1u);
  const Gathered values = {"a", "a", "", std::nullopt, std::nullopt, " 7 b", "a"};
  const Fields runs = to_runs(values);
  EXPECT_EQ(runs.size(), 5u);
  const auto back = from_runs(runs, values.size());
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, values);
  EXPECT_FALSE(from_runs(runs, values.size() - 1).ok());
  EXPECT_FALSE(from_runs(runs, values.size() + 1).ok());
  for (const char* run : {"", "x", "-1 a", "999999999 a"})
    EXPECT_FALSE(from_runs({run}, 1).ok()) << run;
}

TEST(StoreWire, WhatIsTooLongOrNoFrameIsRefused) {
  std::string frame = to_frame({"a"});
  EXPECT_FALSE(take_frame(frame, 4).ok());
  std::string empty(4, '\0');
  EXPECT_FALSE(take_frame(empty, 4096).ok());
  EXPECT_FALSE(parse_reply({"neither"}).ok());
  EXPECT_FALSE(parse_reply({"error", "99", "no such code"}).ok());
  const auto error = parse_reply({"error", "2", "too late"});
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(error.error().message, "too late");
  for (const char* text : {"", "-1", "1x", " 1", "1000000000", "99999999999999999999"}) {
    EXPECT_FALSE(parse_count(text)) << text;
  }
}

TEST(StoreWire, NoBytesBreakTheDecoder) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> byte(0, 255);
  const std::string whole = to_frame({"set", "key", std::string(100, 'v')});
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole.substr(0, random() % (whole.size() + 1));
    for (std::size_t i = random() % 8; i > 0 && !bytes.empty(); --i) {
      bytes[random() % bytes.size()] = static_cast<char>(byte(random));
    }
    const std::size_t before = bytes.size();
    const auto frame = take_frame(bytes, kHelloLimit);
    EXPECT_LE(bytes.size(), before);
    if (frame.ok() && *frame) {
      EXPECT_FALSE((*frame)->empty());
    }
  }
}

/// A connection that has introduced itself as rank 1 of 2, below the store's own client.
UniqueDescriptor introduced(const Endpoint& server) {
  auto fd = connect_to(server, later());
  const std::string nonce = receive_exactly(fd->get(), kStoreHello.size() + kNonceSize, later())
                                ->substr(kStoreHello.size());
  const Member member = {1, 2, "fuzzer"};
  const std::string proof = store_proof("", "client", nonce, "mine", member);
  EXPECT_TRUE(send_all(fd->get(), to_frame({"mine", proof, "1", "2", member.who}), later()).ok());
  return *std::move(fd);
}

TEST(StoreClient, ASilentProgramAtThePortIsAWarningThenAnError) {
  const auto silent = listen_at({"127.0.0.1", 0});
  ASSERT_TRUE(silent.ok());
  const Endpoint endpoint = {"127.0.0.1", silent->port};
  std::vector<std::string> told;
  const auto store = TcpStore::join(endpoint, {1, 2, "test"}, "", soon(),
                                    [&](const std::string& line) { told.push_back(line); });
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kMismatch);
  const auto names_the_port = AllOf(HasSubstr(to_text(endpoint)), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(store.error().message, names_the_port);
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("says nothing yet"), names_the_port)));
}

TEST(StoreServer, NoRequestOfARankBreaksIt) {
  std::mt19937 random(11);
  const std::vector<std::string> words = {"set", "get",  "exchange", "leave", "",
                                          "a",   "1000", "-1",       "99999", std::string(70, 'x')};
  for (int round = 0; round < 100; ++round) {
    const auto server = TcpStoreServer::start({.endpoint = {"127.0.0.1", 0}});
    ASSERT_TRUE(server.ok()) << server.error().message;
    const Endpoint endpoint = {"127.0.0.1", (*server)->port()};
    const UniqueDescriptor fuzzer = introduced(endpoint);
    std::string bytes;
    for (int request = 0; request < 5; ++request) {
      Fields fields;
      for (std::size_t i = 1 + random() % 5; i > 0; --i) {
        fields.push_back(words[random() % words.size()]);
      }
      bytes += to_frame(fields);
    }
    if (round % 4 == 0) bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    [[maybe_unused]] const Status sent = send_all(fuzzer.get(), bytes, later());
    // Another rank is still served, if only with the news that the fuzzer failed.
    const auto rank = TcpStore::join(endpoint, {0, 2, "rank 0"}, "", later());
    if (!rank.ok()) {
      EXPECT_EQ(rank.error().code, ErrorCode::kPeerLost) << rank.error().message;
    } else {
      const Status set = (*rank)->set("mine", "1");
      EXPECT_TRUE(set.ok() || set.error().code == ErrorCode::kPeerLost) << set.error().message;
    }
  }
}

}  // namespace
}  // namespace kolo::store_wire_test
