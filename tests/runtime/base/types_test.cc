// Element types, shapes, deadlines and blobs.
#include "runtime/base/blob.h"
#include "runtime/base/deadline.h"

#include <kolo/types.h>

#include <gtest/gtest.h>

#include <limits>

namespace kolo {
namespace {

TEST(Types, SizesAndNames) {
  const struct {
    DataType type;
    std::size_t size;
    std::string_view name;
  } types[] = {
      {DataType::kFloat32, 4, "float32"},     {DataType::kFloat64, 8, "float64"},
      {DataType::kBFloat16, 2, "bfloat16"},   {DataType::kInt64, 8, "int64"},
      {DataType::kFloat16, 2, "float16"},     {DataType::kInt32, 4, "int32"},
      {DataType::kInt16, 2, "int16"},         {DataType::kInt8, 1, "int8"},
      {DataType::kUInt8, 1, "uint8"},         {DataType::kBool, 1, "bool"},
      {DataType::kComplex64, 8, "complex64"}, {DataType::kComplex128, 16, "complex128"},
  };
  // The numbers travel: a type's index in the list is its value.
  int value = 0;
  for (const auto& [type, size, name] : types) {
    EXPECT_EQ(static_cast<int>(type), value++) << name;
    EXPECT_EQ(size_of(type), size) << name;
    EXPECT_EQ(to_string(type), name);
  }
  EXPECT_EQ(value, kDataTypeCount);
}

TEST(Types, WhatIsDefinedOnWhichType) {
  // By type in the order of the values; letters: sum, average, minimum, maximum, product, Adasum.
  constexpr std::string_view kExpected[kDataTypeCount] = {
      "++++++", "++++++", "++++++", "+++++-", "++++++", "+++++-",
      "+++++-", "+++++-", "+++++-", "+-+++-", "++--+-", "++--+-",
  };
  constexpr std::string_view kNames[kReduceOpCount] = {"sum", "average", "min",
                                                       "max", "product", "adasum"};
  for (int o = 0; o < kReduceOpCount; ++o) {
    const auto op = static_cast<ReduceOp>(o);
    EXPECT_EQ(to_string(op), kNames[o]);
    for (int t = 0; t < kDataTypeCount; ++t) {
      const auto type = static_cast<DataType>(t);
      EXPECT_EQ(is_supported(type, op), kExpected[t][static_cast<std::size_t>(o)] == '+')
          << to_string(op) << " of " << to_string(type);
    }
  }
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

TEST(Deadline, WhatTheClockCannotCountIsNever) {
  using namespace std::chrono;
  const auto never = Deadline::never().time();
  EXPECT_EQ(Deadline::after(seconds::max()).time(), never);
  EXPECT_EQ(Deadline::after(milliseconds::max()).time(), never);
  EXPECT_EQ(Deadline::after(nanoseconds::max()).time(), never);
  EXPECT_EQ(Deadline::after(hours(24 * 365 * 300)).time(), never);
  EXPECT_FALSE(Deadline::after(seconds::max()).expired());
  EXPECT_LT(Deadline::after(hours(24 * 365)).time(), never);
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
