// Every type with every operation against plain arithmetic, with each instruction set of this
// processor; float16 for all of its values; and Adasum's properties.
#include "runtime/device/bfloat16.h"
#include "runtime/device/device.h"
#include "runtime/device/float16.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace kolo::test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 7, 15, 16, 63, 64, 65, 1000, 2049};

template <class Check>
void with_each_target(Check check) {
  const auto choose = [](std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  };
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    choose(target);
    check();
  }
  choose(0);
}

/// A type as the tests see it: its memory, and the numbers in which it is computed.
template <DataType type, class M, class N = M>
struct Case {
  static constexpr DataType kType = type;
  using Memory = M;
  using Number = N;
  static N load(M value) { return value; }
  static M store(N value) { return value; }
};
using Float32 = Case<DataType::kFloat32, float>;
using Float64 = Case<DataType::kFloat64, double>;
using Int64 = Case<DataType::kInt64, std::int64_t>;
using Int32 = Case<DataType::kInt32, std::int32_t>;
using Int16 = Case<DataType::kInt16, std::int16_t>;
using Int8 = Case<DataType::kInt8, std::int8_t>;
using UInt8 = Case<DataType::kUInt8, std::uint8_t>;
using Complex64 = Case<DataType::kComplex64, std::complex<float>>;
using Complex128 = Case<DataType::kComplex128, std::complex<double>>;
struct BFloat16 : Case<DataType::kBFloat16, std::uint16_t, float> {
  static float load(std::uint16_t bits) { return float_of_bfloat16(bits); }
  static std::uint16_t store(float value) { return bfloat16_of_float(value); }
};
struct Float16 : Case<DataType::kFloat16, std::uint16_t, float> {
  static float load(std::uint16_t bits) { return float_of_float16(bits); }
  static std::uint16_t store(float value) { return float16_of_float(value); }
};
struct Bool : Case<DataType::kBool, std::uint8_t, bool> {
  static bool load(std::uint8_t value) { return value != 0; }
  static std::uint8_t store(bool value) { return value ? 1 : 0; }
};

template <class N>
struct is_complex : std::false_type {};
template <class T>
struct is_complex<std::complex<T>> : std::true_type {};

template <class C>
typename C::Memory random_element(std::mt19937& random) {
  using Number = typename C::Number;
  if constexpr (std::is_same_v<Number, bool>) {
    return C::store(random() % 2 == 0);
  } else if constexpr (std::is_integral_v<Number>) {
    return C::store(static_cast<Number>(random()));  // wraps around in sums and products
  } else if constexpr (is_complex<Number>::value) {
    return {static_cast<typename Number::value_type>(static_cast<int>(random() % 9) - 4),
            static_cast<typename Number::value_type>(static_cast<int>(random() % 9) - 4)};
  } else {
    return C::store(static_cast<Number>(static_cast<int>(random() % 41) - 20) / 4);
  }
}

template <class N>
N combine(ReduceOp op, N a, N b) {
  if constexpr (std::is_same_v<N, bool>) {
    return op == ReduceOp::kSum || op == ReduceOp::kMax ? a || b : a && b;
  } else {
    using Wide = std::conditional_t<std::is_integral_v<N>, std::uint64_t, N>;
    if (op == ReduceOp::kSum) return static_cast<N>(static_cast<Wide>(a) + static_cast<Wide>(b));
    if (op == ReduceOp::kProduct)
      return static_cast<N>(static_cast<Wide>(a) * static_cast<Wide>(b));
    if constexpr (!is_complex<N>::value)
      return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
  }
  return a;
}

template <class C>
class Reductions : public testing::Test {};
using Types = testing::Types<Float32, Float64, BFloat16, Float16, Int64, Int32, Int16, Int8, UInt8,
                             Bool, Complex64, Complex128>;
TYPED_TEST_SUITE(Reductions, Types);

TYPED_TEST(Reductions, EveryOperationIsThatOfPlainArithmetic) {
  using Memory = typename TypeParam::Memory;
  std::mt19937 random(5);
  with_each_target([&] {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (!is_supported(TypeParam::kType, op)) continue;
      for (const std::size_t count : kCounts)
        for (const std::size_t inputs : {1U, 2U, 3U, 5U})
          for (const std::size_t shift : {0U, 1U}) {
            std::vector<std::vector<Memory>> arrays(inputs);
            std::vector<const std::byte*> sources;
            for (auto& array : arrays) {
              for (std::size_t i = 0; i < count + shift; ++i)
                array.push_back(random_element<TypeParam>(random));
              sources.push_back(reinterpret_cast<const std::byte*>(array.data() + shift));
            }
            std::vector<Memory> expected;
            for (std::size_t i = shift; i < count + shift; ++i) {
              auto value = TypeParam::load(arrays[0][i]);
              for (std::size_t k = 1; k < inputs; ++k)
                value = combine(op, value, TypeParam::load(arrays[k][i]));
              expected.push_back(TypeParam::store(value));
            }
            // Into the last source: a destination may be one of them.
            Memory* const destination = arrays.back().data() + shift;
            host_device().reduce(TypeParam::kType, op, reinterpret_cast<std::byte*>(destination),
                                 sources, count, {});
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(destination[i], expected[i])
                  << to_string(op) << " of " << inputs << ", element " << i << " of " << count;
          }
    }
  });
}

TYPED_TEST(Reductions, AveragesDivide) {
  if (!is_supported(TypeParam::kType, ReduceOp::kAverage)) return;
  using Number = typename TypeParam::Number;
  std::vector<typename TypeParam::Memory> a(37, TypeParam::store(Number(6)));
  std::vector<typename TypeParam::Memory> b(37, TypeParam::store(Number(4)));
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                      reinterpret_cast<const std::byte*>(b.data())};
  with_each_target([&] {
    auto result = a;
    host_device().reduce(TypeParam::kType, ReduceOp::kAverage,
                         reinterpret_cast<std::byte*>(result.data()), sources, 37, {.divisor = 2});
    for (const auto value : result) EXPECT_EQ(value, TypeParam::store(Number(5)));
  });
}

TEST(Float16, EveryValueSurvivesAndRoundsToTheNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_of_float16(half);
    const bool is_nan = (bits & 0x7FFF) > 0x7C00;
    ASSERT_EQ(std::isnan(value), is_nan);
    if (is_nan) {
      EXPECT_TRUE(std::isnan(float_of_float16(float16_of_float(value))));
      continue;
    }
    ASSERT_EQ(float16_of_float(value), half) << bits;
    // Between a value and its neighbour away from zero the middle goes to the even one.
    if ((bits & 0x7FFF) >= 0x7BFF) continue;
    const float next = float_of_float16(static_cast<std::uint16_t>(bits + 1));
    const float middle = value + (next - value) / 2;
    const auto even = static_cast<std::uint16_t>(bits + (bits & 1));
    ASSERT_EQ(float16_of_float(middle), even) << bits;
    ASSERT_EQ(float16_of_float(std::nextafter(middle, value)), half) << bits;
    ASSERT_EQ(float16_of_float(std::nextafter(middle, next)), bits + 1) << bits;
  }
  EXPECT_EQ(float16_of_float(65519.0F), 0x7BFF);
  EXPECT_EQ(float16_of_float(65520.0F), 0x7C00);
  EXPECT_EQ(float16_of_float(-1e30F), 0xFC00);
}

TEST(Float16, VectorsConvertAsSingleElementsDo) {
  std::vector<std::uint16_t> all(0x10000);
  std::vector<std::uint16_t> offsets(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::uint16_t>(i);
    offsets[i] = float16_of_float(static_cast<float>(i % 17) / 1024);
  }
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(all.data()),
                                      reinterpret_cast<const std::byte*>(offsets.data())};
  with_each_target([&] {
    std::vector<std::uint16_t> sums(all.size());
    host_device().reduce(DataType::kFloat16, ReduceOp::kSum,
                         reinterpret_cast<std::byte*>(sums.data()), sources, all.size(), {});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float sum = float_of_float16(all[i]) + float_of_float16(offsets[i]);
      if (std::isnan(sum)) {
        ASSERT_TRUE(std::isnan(float_of_float16(sums[i]))) << i;
      } else {
        ASSERT_EQ(sums[i], float16_of_float(sum)) << i;
      }
    }
  });
}

TEST(Extremes, ANotANumberOnEitherSideStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> a(35, 1.0F);
  std::vector<float> b(35, 2.0F);
  for (std::size_t i = 0; i < a.size(); i += 3) a[i] = nan;
  for (std::size_t i = 1; i < b.size(); i += 3) b[i] = nan;
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                      reinterpret_cast<const std::byte*>(b.data())};
  with_each_target([&] {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<float> result(a.size());
      host_device().reduce(DataType::kFloat32, op, reinterpret_cast<std::byte*>(result.data()),
                           sources, a.size(), {});
      for (std::size_t i = 0; i < result.size(); ++i) {
        EXPECT_EQ(std::isnan(result[i]), i % 3 != 2) << i;
      }
    }
  });
}

std::vector<double> adasum(std::vector<double> a, const std::vector<double>& b) {
  host_device().adasum(DataType::kFloat64, reinterpret_cast<std::byte*>(a.data()),
                       reinterpret_cast<const std::byte*>(a.data()),
                       reinterpret_cast<const std::byte*>(b.data()), a.size());
  return a;
}

TEST(Adasum, AveragesWhatIsParallelAndAddsWhatIsOrthogonal) {
  const std::vector<double> x = {3, 0, 0, 4, 0, 0, 0, 0, 5};
  EXPECT_EQ(adasum(x, x), x);
  EXPECT_EQ(adasum({2, 0, 2}, {0, 3, 0}), (std::vector<double>{2, 3, 2}));
  EXPECT_EQ(adasum({0, 0, 0}, {1, 2, 3}), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(adasum({1, 2, 3}, {0, 0, 0}), (std::vector<double>{1, 2, 3}));
  // (1 − ab/2aa) a + (1 − ab/2bb) b of (1, 1) and (1, 0)
  EXPECT_EQ(adasum({1, 1}, {1, 0}), (std::vector<double>{0.75 + 0.5, 0.75}));
  EXPECT_EQ(adasum({}, {}), std::vector<double>());
}

TEST(Adasum, TakesEveryFloatingType) {
  const auto check = [](DataType type, auto two, auto three) {
    std::vector<decltype(two)> a(20, two);
    const std::vector<decltype(two)> b(20, two);
    host_device().adasum(type, reinterpret_cast<std::byte*>(a.data()),
                         reinterpret_cast<const std::byte*>(a.data()),
                         reinterpret_cast<const std::byte*>(b.data()), a.size());
    EXPECT_EQ(a, b);
    EXPECT_NE(two, three);
  };
  check(DataType::kFloat32, 2.0F, 3.0F);
  check(DataType::kFloat16, float16_of_float(2), float16_of_float(3));
  check(DataType::kBFloat16, bfloat16_of_float(2), bfloat16_of_float(3));
}

}  // namespace
}  // namespace kolo::test
