// The mapping of kolo's types and operations to NCCL's, in NCCL's own numbers.
#include "runtime/nccl/nccl_reduction.h"
#include "runtime/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace kolo {
namespace {

using ::testing::HasSubstr;

constexpr int kSum = 0;
constexpr int kProduct = 1;
constexpr int kMax = 2;
constexpr int kMin = 3;

TEST(NcclReduction, RealNumbersKeepTheirTypeAndOperation) {
  const std::map<DataType, int> types = {{DataType::kInt8, 0},    {DataType::kUInt8, 1},
                                         {DataType::kInt32, 2},   {DataType::kInt64, 4},
                                         {DataType::kFloat16, 6}, {DataType::kFloat32, 7},
                                         {DataType::kFloat64, 8}, {DataType::kBFloat16, 9}};
  const std::map<ReduceOp, int> ops = {{ReduceOp::kSum, kSum},
                                       {ReduceOp::kAverage, kSum},
                                       {ReduceOp::kProduct, kProduct},
                                       {ReduceOp::kMax, kMax},
                                       {ReduceOp::kMin, kMin}};
  for (const auto& [type, its_type] : types) {
    for (const auto& [op, its_op] : ops) {
      const auto reduction = nccl_reduction(type, op);
      ASSERT_TRUE(reduction.ok()) << reduction.error().message;
      EXPECT_EQ(static_cast<int>(reduction->type), its_type) << to_string(type);
      EXPECT_EQ(static_cast<int>(reduction->op), its_op) << to_string(op);
      EXPECT_EQ(reduction->values, 1U);
    }
  }
}

TEST(NcclReduction, ABoolIsAByteWhoseOrIsTheMaximum) {
  const std::map<ReduceOp, int> ops = {{ReduceOp::kSum, kMax},
                                       {ReduceOp::kMax, kMax},
                                       {ReduceOp::kProduct, kMin},
                                       {ReduceOp::kMin, kMin}};
  for (const auto& [op, its_op] : ops) {
    const auto reduction = nccl_reduction(DataType::kBool, op);
    ASSERT_TRUE(reduction.ok()) << reduction.error().message;
    EXPECT_EQ(static_cast<int>(reduction->type), 1);
    EXPECT_EQ(static_cast<int>(reduction->op), its_op) << to_string(op);
  }
}

TEST(NcclReduction, AComplexNumberIsTwoRealOnes) {
  for (const auto& [type, its_type] :
       std::map<DataType, int>{{DataType::kComplex64, 7}, {DataType::kComplex128, 8}}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const auto reduction = nccl_reduction(type, op);
      ASSERT_TRUE(reduction.ok()) << reduction.error().message;
      EXPECT_EQ(static_cast<int>(reduction->type), its_type);
      EXPECT_EQ(static_cast<int>(reduction->op), kSum);
      EXPECT_EQ(reduction->values, 2U);
    }
  }
}

TEST(NcclReduction, WhatNcclHasNotSaysWhatToDo) {
  const std::vector<std::pair<DataType, ReduceOp>> missing = {
      {DataType::kInt16, ReduceOp::kSum},         {DataType::kInt16, ReduceOp::kMax},
      {DataType::kComplex64, ReduceOp::kProduct}, {DataType::kComplex128, ReduceOp::kProduct},
      {DataType::kFloat32, ReduceOp::kAdasum},    {DataType::kBool, ReduceOp::kAverage},
      {DataType::kComplex64, ReduceOp::kMin}};
  for (const auto& [type, op] : missing) {
    const auto reduction = nccl_reduction(type, op);
    ASSERT_FALSE(reduction.ok()) << to_string(type) << " " << to_string(op);
    EXPECT_EQ(reduction.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(reduction.error().message, HasSubstr(std::string(to_string(type))));
    EXPECT_THAT(reduction.error().message, HasSubstr(std::string(to_string(op))));
    EXPECT_THAT(reduction.error().message, HasSubstr("KOLO_OPERATIONS=kolo"));
  }
}

}  // namespace
}  // namespace kolo
