// Element types, shapes, deadlines and blobs: the small values.
#include "runtime/base/blob.h"
#include "runtime/base/deadline.h"

#include <kolo/types.h>

#include <gtest/gtest.h>

#include <limits>

namespace kolo {
namespace {

TEST(Types, SizesAndNames) {
  EXPECT_EQ(size_of(DataType::kFloat32), 4U);
  EXPECT_EQ(size_of(DataType::kFloat64), 8U);
  EXPECT_EQ(size_of(DataType::kBFloat16), 2U);
  EXPECT_EQ(size_of(DataType::kInt64), 8U);
  EXPECT_EQ(to_string(DataType::kBFloat16), "bfloat16");
  EXPECT_EQ(to_string(ReduceOp::kAverage), "average");
}

TEST(Types, Shapes) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({64, 1, 3, 3}), 576);
  EXPECT_EQ(element_count({5, 0}), 0);
  EXPECT_EQ(to_string(Shape{64, 1, 3, 3}), "[64, 1, 3, 3]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Deadline, NeverAndPast) {
  using std::chrono::seconds;
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_EQ(Deadline::never().remaining(seconds(5)), seconds(5));
  const auto past = Deadline::after(-seconds(1));
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.remaining(seconds(5)), seconds(0));
  EXPECT_EQ(Deadline::after(seconds(3600)).remaining(seconds(5)), seconds(5));
}

TEST(Blob, ComesBackAsItWas) {
  const std::vector<std::string> fields = {"", "a", std::string("\0b\xff", 3),
                                           std::string(70000, 'c')};
  std::vector<std::string> back;
  ASSERT_TRUE(split_fields(join_fields(fields), back));
  EXPECT_EQ(back, fields);
}

TEST(Blob, EveryTruncationWithinAFieldIsNoticed) {
  const std::string blob = join_fields({"abc", "defg"});
  std::vector<std::string> back;
  for (std::size_t length = 1; length < blob.size(); ++length) {
    const bool at_a_border = length == sizeof(std::uint32_t) + 3;
    EXPECT_EQ(split_fields(std::string_view(blob).substr(0, length), back), at_a_border) << length;
  }
  EXPECT_FALSE(
      split_fields("\xff\xff\xff\xff"
                   "abc",
                   back));
}

}  // namespace
}  // namespace kolo
