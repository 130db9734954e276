#include "runtime/health/departures.h"
#include "runtime/health/abort_message.h"

#include <gtest/gtest.h>

namespace kolo::departures_test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Departures, ARankThatDidItsPartDoesNoHarm) {
  Departures departures(3);
  EXPECT_FALSE(departures.any());
  ASSERT_TRUE(departures.add(1, bytes_of(Departures::encode({4, {10, 2}}))));
  EXPECT_TRUE(departures.any());
  EXPECT_TRUE(departures.contains(1));
  EXPECT_FALSE(departures.missing_in(SubmissionMode::kNegotiated, 9).has_value());
  EXPECT_EQ(departures.missing_in(SubmissionMode::kNegotiated, 10), 1);
  EXPECT_FALSE(departures.missing_in(SubmissionMode::kInOrder, 1).has_value());
  EXPECT_EQ(departures.missing_in(SubmissionMode::kInOrder, 2), 1);
}

TEST(Departures, WhatItHadRefusedItHadNotDone) {
  Departures departures(2);
  // The last of 70 ordered calls, and the one 63 calls before it.
  constexpr std::uint64_t kRefused = 1 | std::uint64_t{1} << 63;
  ASSERT_TRUE(departures.add(1, bytes_of(Departures::encode({4, {100, 70}, 0, kRefused}))));
  for (const std::uint64_t sequence : {5U, 7U, 68U})
    EXPECT_FALSE(departures.missing_in(SubmissionMode::kInOrder, sequence).has_value()) << sequence;
  for (const std::uint64_t sequence : {6U, 69U, 70U})
    EXPECT_EQ(departures.missing_in(SubmissionMode::kInOrder, sequence), 1) << sequence;
  EXPECT_FALSE(departures.missing_in(SubmissionMode::kNegotiated, 69).has_value());
}

TEST(Departures, WhatItHadAgreedOnMayStillBeOnItsWay) {
  Departures departures(2);
  ASSERT_TRUE(departures.add(0, bytes_of(Departures::encode({4, {}}))));
  EXPECT_FALSE(departures.is_missing_in_negotiation(0, 3));
  EXPECT_TRUE(departures.is_missing_in_negotiation(0, 4));
  EXPECT_FALSE(departures.is_missing_in_negotiation(1, 4));
}

TEST(Departures, SaysWhetherMessagesWereCutShort) {
  Departures departures(3);
  ASSERT_TRUE(departures.add(0, bytes_of(Departures::encode({4, {}}))));
  ASSERT_TRUE(departures.add(1, bytes_of(Departures::encode({4, {}, 2}))));
  EXPECT_FALSE(departures.cut_messages(0));
  EXPECT_TRUE(departures.cut_messages(1));
  EXPECT_FALSE(departures.cut_messages(2));
}

TEST(Departures, RefusesGarbage) {
  Departures departures(2);
  EXPECT_FALSE(departures.add(1, bytes_of("bye")));
  EXPECT_FALSE(departures.any());
}

TEST(AbortMessage, SurvivesTheWire) {
  AbortMessage abort_message;
  abort_message.error.code = ErrorCode::kPeerLost;
  abort_message.error.message = "rank 2 is lost";
  abort_message.culprit = 2;
  const AbortMessage decoded = AbortMessage::decode(bytes_of(abort_message.encode()), 1);
  EXPECT_EQ(decoded.error.code, ErrorCode::kPeerLost);
  EXPECT_EQ(decoded.error.message, "rank 2 is lost");
  EXPECT_EQ(decoded.culprit, 2);
}

TEST(AbortMessage, BlamesTheSenderOfGarbage) {
  const AbortMessage decoded = AbortMessage::decode(bytes_of("\xff"), 5);
  EXPECT_EQ(decoded.culprit, 5);
  EXPECT_EQ(decoded.error.code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace kolo::departures_test
