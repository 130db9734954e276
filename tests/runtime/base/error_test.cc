// The error values and the macros that make and pass them on.
#include "runtime/base/abort.h"
#include "runtime/base/check.h"
#include "runtime/base/printable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace kolo {
namespace {

using testing::HasSubstr;

Status fail_if(bool bad) {
  if (bad) return KOLO_ERROR(kPeerLost, "rank {} is gone", 3);
  return {};
}

Result<int> twice(Result<int> input) {
  KOLO_ASSIGN(const int value, std::move(input));
  KOLO_TRY(fail_if(value < 0));
  return 2 * value;
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    names.insert(to_string(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kInternal) + 1);
  EXPECT_EQ(names.count("unknown error"), 0U);
}

TEST(Error, CarriesMessageAndPlace) {
  const Status status = fail_if(true);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(status.error().message, "rank 3 is gone");
  EXPECT_THAT(status.error().file, HasSubstr("error_test.cc"));
  EXPECT_GT(status.error().line, 0);
}

TEST(Error, MacrosPassValuesAndErrorsOn) {
  EXPECT_EQ(*twice(21), 42);
  EXPECT_EQ(twice(-1).error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(twice(KOLO_ERROR(kTimeout, "late")).error().message, "late");
}

TEST(CheckDeathTest, StopsAtABrokenInvariant) {
  EXPECT_DEATH(KOLO_CHECK(1 + 1 == 3), "error_test.cc:.*broken invariant: 1 \\+ 1 == 3");
}

TEST(Abort, TheFirstFailureStays) {
  Abort abort;
  EXPECT_TRUE(abort.status().ok());
  EXPECT_TRUE(abort.raise(KOLO_ERROR(kTransport, "first"), 2));
  EXPECT_FALSE(abort.raise(KOLO_ERROR(kTimeout, "second"), 5));
  EXPECT_TRUE(abort.raised());
  EXPECT_EQ(abort.error().message, "first");
  EXPECT_EQ(abort.culprit(), 2);
  EXPECT_EQ(abort.status().error().code, ErrorCode::kTransport);
}

TEST(Abort, OneOfManyThreadsWinsAndAllReadItsFailure) {
  Abort abort;
  std::atomic<int> winners = 0;
  std::atomic<int> mixed = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 8; ++rank) {
    threads.emplace_back([&, rank] {
      if (abort.raise(KOLO_ERROR(kPeerLost, "rank {}", rank), rank)) ++winners;
      if (abort.error().message != fmt::format("rank {}", abort.culprit())) ++mixed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_EQ(mixed, 0);
}

TEST(AbortDeathTest, HasNoErrorBeforeTheFirst) {
  const Abort abort;
  EXPECT_DEATH(static_cast<void>(abort.error()), "broken invariant: raised");
}

TEST(Printable, LeavesTextAsItIs) {
  EXPECT_EQ(printable("tensor 'weiß': rank 1"), "tensor 'weiß': rank 1");
  EXPECT_EQ(printable(std::string(4096, 'x')), std::string(4096, 'x'));
}

TEST(Printable, EscapesControlCodes) {
  EXPECT_EQ(printable("a\x1b[31m\nb\x7f"), "a\\x1b[31m\\x0ab\\x7f");
}

TEST(Printable, LeavesTheMiddleOfALongTextOut) {
  // Characters of two bytes each: a cut at the size limit falls inside one.
  std::string name = "x";
  for (int i = 0; i < 500'000; ++i) name += "ß";
  const std::string text = printable("tensor '" + name + "': rank 1 has none");
  EXPECT_LT(text.size(), 4096U);
  EXPECT_TRUE(text.starts_with("tensor 'xß"));
  EXPECT_NE(text.find("ß … (996"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("ß': rank 1 has none"));
}

}  // namespace
}  // namespace kolo
