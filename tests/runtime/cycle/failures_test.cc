// Which of several failures ends the job.
#include "runtime/cycle/failures.h"

#include <gtest/gtest.h>

namespace kolo {
namespace {

Failure failure(ErrorCode code, const char* message, int culprit = Abort::kNoCulprit) {
  return {.error = {.code = code, .message = message}, .culprit = culprit};
}

TEST(Failures, TheFirstCounts) {
  Failures failures;
  failures.note(failure(ErrorCode::kTimeout, "first"));
  failures.note(failure(ErrorCode::kPeerLost, "rank 3 is lost", 3));
  EXPECT_EQ(failures.first().error.message, "first");
}

// A transfer over the link may fail before the transport reports the loss.
TEST(Failures, TheLossOfARankCountsBeforeWhatItsLinkBroke) {
  Failures failures;
  failures.note(failure(ErrorCode::kPeerLost, "send to rank 3"));
  failures.note(failure(ErrorCode::kPeerLost, "rank 3 is lost", 3));
  failures.note(failure(ErrorCode::kPeerLost, "rank 4 is lost", 4));
  EXPECT_EQ(failures.first().error.message, "rank 3 is lost");
  EXPECT_EQ(failures.first().culprit, 3);
}

TEST(Failures, WhatAnotherRankSaysCountsBeforeBoth) {
  Failures failures;
  failures.note(failure(ErrorCode::kPeerLost, "send to rank 3"));
  Failure heard = failure(ErrorCode::kPeerLost, "rank 4 has told it");
  heard.heard = true;
  failures.hear(heard);
  failures.note(failure(ErrorCode::kPeerLost, "rank 3 is lost", 3));
  EXPECT_EQ(failures.take().error.message, "rank 4 has told it");
  EXPECT_FALSE(failures.any());
}

}  // namespace
}  // namespace kolo
