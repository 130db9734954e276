// Every type with every operation against plain arithmetic, with each instruction set of this
// processor; scaling; and Adasum's properties.
#include "tests/runtime/device/element_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace kolo::test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 7, 15, 16, 63, 64, 65, 1000, 2049};

template <class N>
N combine(ReduceOp op, N a, N b) {
  if constexpr (std::is_same_v<N, bool>) {
    return op == ReduceOp::kSum || op == ReduceOp::kMax ? a || b : a && b;
  } else {
    using Wide = std::conditional_t<std::is_integral_v<N>, std::uint64_t, N>;
    if (op == ReduceOp::kSum) return static_cast<N>(static_cast<Wide>(a) + static_cast<Wide>(b));
    if (op == ReduceOp::kProduct)
      return static_cast<N>(static_cast<Wide>(a) * static_cast<Wide>(b));
    if constexpr (!IsComplex<N>::value)
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
        for (const std::size_t inputs : {1U, 2U, 3U, 4U, 5U})
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

/// Combines `count` elements of `a` and `b` by `op`.
template <class C>
std::vector<typename C::Memory> reduced(ReduceOp op, const std::vector<typename C::Memory>& a,
                                        const std::vector<typename C::Memory>& b, Scale scale) {
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                      reinterpret_cast<const std::byte*>(b.data())};
  std::vector<typename C::Memory> result(a.size());
  host_device().reduce(C::kType, op, reinterpret_cast<std::byte*>(result.data()), sources, a.size(),
                       scale);
  return result;
}

template <class C>
void check_extremes() {
  using Number = typename C::Number;
  const auto nan = C::store(std::numeric_limits<Number>::quiet_NaN());
  std::vector<typename C::Memory> a(67, C::store(Number(1)));
  std::vector<typename C::Memory> b(67, C::store(Number(2)));
  for (std::size_t i = 0; i < a.size(); i += 3) a[i] = nan;
  for (std::size_t i = 1; i < b.size(); i += 3) b[i] = nan;
  with_each_target([&] {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const auto result = reduced<C>(op, a, b, {});
      for (std::size_t i = 0; i < result.size(); ++i)
        EXPECT_EQ(std::isnan(C::load(result[i])), i % 3 != 2) << to_string(op) << " " << i;
    }
  });
}

TEST(Extremes, ANotANumberOnEitherSideStays) {
  check_extremes<Float32>();
  check_extremes<Float64>();
  check_extremes<Float16>();
  check_extremes<BFloat16>();
}

TEST(Scaling, FollowsEveryOperation) {
  const auto check = [](auto type, ReduceOp op, float expected) {
    using C = decltype(type);
    using Number = typename C::Number;
    const std::vector<typename C::Memory> a(37, C::store(Number(6)));
    const std::vector<typename C::Memory> b(37, C::store(Number(10)));
    for (const auto value : reduced<C>(op, a, b, {.factor = 0.5}))
      EXPECT_EQ(value, C::store(static_cast<Number>(expected)))
          << to_string(C::kType) << " " << to_string(op);
  };
  const auto check_all = [&](auto type) {
    check(type, ReduceOp::kSum, 8);
    check(type, ReduceOp::kProduct, 30);
    if (!is_supported(type.kType, ReduceOp::kMin)) return;
    check(type, ReduceOp::kMin, 3);
    check(type, ReduceOp::kMax, 5);
  };
  with_each_target([&] {
    check_all(Float32());
    check_all(Float64());
    check_all(BFloat16());
    check_all(Float16());
    check_all(Int64());
    check_all(Int32());
    check_all(Int16());
    check_all(Int8());
    check_all(UInt8());
    check_all(Complex64());
    check_all(Complex128());
  });
}

TEST(Scaling, AProductOfHalvesIsScaledBeforeItIsRounded) {
  // 300 · 300 is beyond the largest float16; a quarter of it is not.
  const std::vector<std::uint16_t> a(37, float16_of_float(300));
  with_each_target([&] {
    for (const auto value : reduced<Float16>(ReduceOp::kProduct, a, a, {.factor = 0.25}))
      EXPECT_EQ(value, float16_of_float(22500));
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

template <class C>
void check_adasum() {
  constexpr std::size_t kCount = 203;
  std::mt19937 random(11);
  std::vector<typename C::Memory> a, b;
  double aa = 0, bb = 0, ab = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    a.push_back(random_element<C>(random));
    b.push_back(random_element<C>(random));
    const auto x = static_cast<double>(C::load(a[i])), y = static_cast<double>(C::load(b[i]));
    aa += x * x;
    bb += y * y;
    ab += x * y;
  }
  const auto combined = [](auto to, const auto& x, const auto& y) {
    host_device().adasum(C::kType, reinterpret_cast<std::byte*>(to.data()),
                         reinterpret_cast<const std::byte*>(x.data()),
                         reinterpret_cast<const std::byte*>(y.data()), x.size());
    return to;
  };
  const auto result = combined(a, a, b);
  EXPECT_EQ(combined(a, b, a), result) << "not symmetric: " << to_string(C::kType);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto x = static_cast<double>(C::load(a[i])), y = static_cast<double>(C::load(b[i]));
    const double expected = (1 - ab / (2 * aa)) * x + (1 - ab / (2 * bb)) * y;
    // One part in 2^8 is bfloat16's precision; the values are below 64.
    EXPECT_NEAR(static_cast<double>(C::load(result[i])), expected, 0.125) << to_string(C::kType);
    if constexpr (sizeof(typename C::Memory) > 2) {
      EXPECT_NEAR(static_cast<double>(C::load(result[i])), expected, 1e-5);
    }
  }
}

TEST(Adasum, TakesEveryFloatingTypeInEitherOrder) {
  check_adasum<Float32>();
  check_adasum<Float64>();
  check_adasum<Float16>();
  check_adasum<BFloat16>();
}

}  // namespace
}  // namespace kolo::test
