#include "runtime/submission/finite_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <vector>

namespace kolo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <class T>
NonFinite find(DataType type, const std::vector<T>& values) {
  return find_non_finite(type, reinterpret_cast<const std::byte*>(values.data()), values.size());
}

/// A NaN or infinity at each place of tensors of all short lengths, among the largest finite ones.
template <class T>
void check_each_place(DataType type, T largest, T nan, T infinity, T minus_infinity) {
  for (std::size_t size = 1; size < 40; ++size) {
    std::vector<T> values(size, largest);
    EXPECT_EQ(find(type, values).nans + find(type, values).infinities, 0U);
    for (std::size_t at = 0; at < size; ++at) {
      for (const T wrong : {nan, infinity, minus_infinity}) {
        values.assign(size, largest);
        values[at] = wrong;
        values.back() = wrong;
        const NonFinite found = find(type, values);
        const std::uint64_t count = at + 1 == size ? 1 : 2;
        EXPECT_EQ(found.first, at) << size;
        const bool is_nan = std::memcmp(&wrong, &nan, sizeof(T)) == 0;
        EXPECT_EQ(found.nans, is_nan ? count : 0) << size << " " << at;
        EXPECT_EQ(found.infinities, is_nan ? 0 : count) << size << " " << at;
      }
    }
  }
}

TEST(FindNonFinite, FindsEachPlaceInAllFloatingTypes) {
  using F = std::numeric_limits<float>;
  using D = std::numeric_limits<double>;
  check_each_place<float>(DataType::kFloat32, F::lowest(), F::quiet_NaN(), F::infinity(),
                          -F::infinity());
  check_each_place<double>(DataType::kFloat64, D::lowest(), D::quiet_NaN(), D::infinity(),
                           -D::infinity());
  check_each_place<std::uint16_t>(DataType::kFloat16, 0xFBFF, 0x7E00, 0x7C00, 0xFC00);
  check_each_place<std::uint16_t>(DataType::kFloat16, 0xFBFF, 0x7C01, 0x7C00, 0xFC00);
  check_each_place<std::uint16_t>(DataType::kBFloat16, 0xFF7F, 0x7FC0, 0x7F80, 0xFF80);
}

TEST(FindNonFinite, CountsElementsOfComplexNumbersOnce) {
  using Complex = std::complex<float>;
  std::vector<Complex> values(9, {1, 2});
  values[5] = {1, std::numeric_limits<float>::quiet_NaN()};
  values[7] = {std::numeric_limits<float>::infinity(), 0};
  const NonFinite found = find(DataType::kComplex64, values);
  EXPECT_EQ(found.first, 5U);
  EXPECT_EQ(found.nans, 1U);
  EXPECT_EQ(found.infinities, 1U);
}

TEST(FindNonFinite, IntegersAreFinite) {
  EXPECT_EQ(find(DataType::kInt32, std::vector<std::uint32_t>(10, 0x7FC00000)).nans, 0U);
}

class FiniteCheckTest : public testing::Test {
 protected:
  Submission call(ReduceOp op = ReduceOp::kSum) {
    Submission call;
    call.name = "x";
    call.signature.op = op;
    call.signature.shape = {static_cast<std::int64_t>(values_.size())};
    call.input = reinterpret_cast<const std::byte*>(values_.data());
    return call;
  }
  Log log_{"warning"};
  std::vector<float> values_ = std::vector<float>(10, 1.0F);
  const float infinity_ = std::numeric_limits<float>::infinity();
};

TEST_F(FiniteCheckTest, AnErrorTellsHowManyAndWhere) {
  FiniteCheck check("error", log_);
  EXPECT_EQ(check.look(call()), "");
  values_[4] = NAN;
  values_[6] = -infinity_;
  EXPECT_THAT(check.look(call()),
              AllOf(HasSubstr("its input of 10 elements has 1 NaN and 1 infinite values, the first "
                              "at element 4;"),
                    HasSubstr("KOLO_CHECK_FINITE=warn"), HasSubstr("GradScaler")));
  Submission packed = call();
  packed.part_at = [](std::uint64_t element) { return element == 4 ? "fc1.weight" : "fc1.bias"; };
  EXPECT_THAT(check.look(packed), HasSubstr("at element 4 in 'fc1.weight';"));
}

TEST_F(FiniteCheckTest, InfinityMayBeMeantInAMinimum) {
  FiniteCheck check("error", log_);
  values_[4] = infinity_;
  EXPECT_EQ(check.look(call(ReduceOp::kMin)), "");
  EXPECT_EQ(check.look(call(ReduceOp::kMax)), "");
  EXPECT_NE(check.look(call(ReduceOp::kAverage)), "");
  values_[5] = NAN;
  EXPECT_NE(check.look(call(ReduceOp::kMin)), "");
}

TEST_F(FiniteCheckTest, LooksOnlyAtWhatIsReadAndReduced) {
  FiniteCheck check("error", log_);
  values_[4] = NAN;
  Submission absent = call();
  absent.absent = true;
  EXPECT_EQ(check.look(absent), "");
  Submission moved = call();
  moved.signature.kind = OperationKind::kBroadcast;
  EXPECT_EQ(check.look(moved), "");
  EXPECT_EQ(FiniteCheck("off", log_).look(call()), "");
}

TEST_F(FiniteCheckTest, WarnsOnceInAWhileWithTheName) {
  FiniteCheck check("warn", log_);
  values_[4] = NAN;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(check.look(call()), "");
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("allreduce 'x': its input of 10 elements has 1 NaN"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1);
}

TEST_F(FiniteCheckTest, SaysThatItDoesNotLookAtDeviceMemory) {
  FiniteCheck check("error", log_);
  values_[4] = NAN;
  Submission there = call();
  there.signature.on_device = true;
  testing::internal::CaptureStderr();
  EXPECT_EQ(check.look(there), "");
  EXPECT_EQ(check.look(there), "");
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("CUDA memory is not checked"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1);
}

}  // namespace
}  // namespace kolo
