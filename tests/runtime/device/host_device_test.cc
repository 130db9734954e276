// The host's kernels against scalar references: every type, odd sizes and alignments, special
// values, with each instruction set of this processor. The references do not share code with the
// kernels.
#include "tests/runtime/device/element_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace kolo::test {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 257, 1021};
constexpr Scale kScales[] = {{}, {.factor = 0.5}, {.divisor = 3}, {.factor = -1.25, .divisor = 7}};

float widen(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

/// The nearest of the two neighbours; on a tie the one whose last bit is zero.
std::uint16_t round_slowly(float value) {
  std::uint32_t wide = 0;
  std::memcpy(&wide, &value, sizeof(wide));
  const auto below = static_cast<std::uint16_t>(wide >> 16);
  const std::uint32_t rest = wide & 0xFFFF;
  if (std::isnan(value)) return 0x7FC0;
  if (rest > 0x8000 || (rest == 0x8000 && (below & 1) != 0))
    return static_cast<std::uint16_t>(below + 1);
  return below;
}

// One type for the tests: how to make an element, and the results of a sum and of a scaling.
template <class T>
struct Floating {
  using Element = T;
  using Sum = T;
  static Element random(std::mt19937& generator) {
    return static_cast<T>(std::uniform_real_distribution<double>(-100, 100)(generator));
  }
  static Sum add(Sum a, Element b) { return a + b; }
  static Sum start(Element a) { return a; }
  static Element finish(Sum sum, Scale scale) {
    if (scale.is_identity()) return sum;
    return sum * static_cast<T>(scale.factor / static_cast<double>(scale.divisor));
  }
};
struct Float32 : Floating<float> {
  static constexpr DataType kType = DataType::kFloat32;
};
struct Float64 : Floating<double> {
  static constexpr DataType kType = DataType::kFloat64;
};
struct BFloat16 {
  static constexpr DataType kType = DataType::kBFloat16;
  using Element = std::uint16_t;
  using Sum = float;
  static Element random(std::mt19937& generator) {
    return round_slowly(Floating<float>::random(generator));
  }
  static Sum start(Element a) { return widen(a); }
  static Sum add(Sum a, Element b) { return a + widen(b); }
  static Element finish(Sum sum, Scale scale) {
    return round_slowly(Floating<float>::finish(sum, scale));
  }
};
struct Int64 {
  static constexpr DataType kType = DataType::kInt64;
  using Element = std::int64_t;
  using Sum = std::int64_t;
  static Element random(std::mt19937& generator) {
    return std::uniform_int_distribution<std::int64_t>(-1'000'000, 1'000'000)(generator);
  }
  static Sum start(Element a) { return a; }
  static Sum add(Sum a, Element b) { return a + b; }
  static Element finish(Sum sum, Scale scale) {
    return static_cast<std::int64_t>(std::trunc(static_cast<double>(sum) * scale.factor)) /
           scale.divisor;
  }
};

template <class T>
class HostDevice : public ::testing::Test {
 protected:
  using Element = typename T::Element;

  /// An array that begins `shift` elements after a well-aligned address.
  struct Array {
    Array(std::size_t count, std::size_t shift) : memory(count + shift), offset(shift) {}
    Element* data() { return memory.data() + offset; }
    std::byte* bytes() { return reinterpret_cast<std::byte*>(data()); }
    std::vector<Element> memory;
    std::size_t offset;
  };

  Array random_array(std::size_t count, std::size_t shift) {
    Array array(count, shift);
    for (std::size_t i = 0; i < count; ++i) array.data()[i] = T::random(generator_);
    return array;
  }

  std::mt19937 generator_{7};
};

using Types = ::testing::Types<Float32, Float64, BFloat16, Int64>;
TYPED_TEST_SUITE(HostDevice, Types);

TYPED_TEST(HostDevice, SumsAnyNumberOfSources) {
  with_each_target([&] {
    for (const std::size_t count : kSizes)
      for (const std::size_t source_count : {1u, 2u, 3u, 5u})
        for (const Scale scale : kScales)
          for (const bool in_place : {false, true}) {
            std::vector<typename TestFixture::Array> arrays;
            for (std::size_t k = 0; k < source_count; ++k)
              arrays.push_back(this->random_array(count, k));
            std::vector<const std::byte*> sources;
            for (auto& array : arrays) sources.push_back(array.bytes());

            std::vector<typename TypeParam::Element> expected;
            for (std::size_t i = 0; i < count; ++i) {
              auto sum = TypeParam::start(arrays[0].data()[i]);
              for (std::size_t k = 1; k < source_count; ++k)
                sum = TypeParam::add(sum, arrays[k].data()[i]);
              expected.push_back(TypeParam::finish(sum, scale));
            }
            typename TestFixture::Array other(count + 1, 1);
            const auto guard = TypeParam::random(this->generator_);
            other.data()[count] = guard;
            auto& destination = in_place ? arrays.back() : other;
            host_device().reduce(TypeParam::kType, ReduceOp::kSum, destination.bytes(), sources,
                                 count, scale);
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(destination.data()[i], expected[i])
                  << "element " << i << " of " << count << ", " << source_count
                  << " sources, scale " << scale.factor << "/" << scale.divisor << ", in place "
                  << in_place;
            EXPECT_EQ(other.data()[count], guard) << "wrote beyond the end";
          }
  });
}

TYPED_TEST(HostDevice, CopiesAndScales) {
  with_each_target([&] {
    for (const std::size_t count : kSizes)
      for (const Scale scale : kScales) {
        auto source = this->random_array(count, 1);
        typename TestFixture::Array destination(count, 2);
        host_device().copy(TypeParam::kType, destination.bytes(), source.bytes(), count, scale);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(destination.data()[i],
                    TypeParam::finish(TypeParam::start(source.data()[i]), scale));
        host_device().copy(TypeParam::kType, source.bytes(), source.bytes(), count, scale);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(source.data()[i], destination.data()[i]);
      }
  });
}

template <class T>
std::vector<T> sum_of(DataType type, std::vector<T> a, const std::vector<T>& b, Scale scale = {}) {
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                reinterpret_cast<const std::byte*>(b.data())};
  host_device().reduce(type, ReduceOp::kSum, reinterpret_cast<std::byte*>(a.data()), sources,
                       a.size(), scale);
  return a;
}

TEST(HostDeviceSpecialValues, FloatsKeepNanAndInfinity) {
  with_each_target([&] {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    // 40 elements: each case is met by a vector and by the rest after the last vector.
    for (std::size_t place = 0; place < 40; ++place) {
      std::vector<float> a(40, 1), b(40, 2);
      a[place] = inf;
      EXPECT_EQ(sum_of(DataType::kFloat32, a, b)[place], inf);
      b[place] = -inf;
      EXPECT_TRUE(std::isnan(sum_of(DataType::kFloat32, a, b)[place]));
      a[place] = nan;
      EXPECT_TRUE(std::isnan(sum_of(DataType::kFloat32, a, b, {.divisor = 2})[place]));
    }
  });
}

TEST(HostDeviceSpecialValues, BFloat16RoundsTiesToEvenAndKeepsNan) {
  with_each_target([&] {
    struct Case {
      std::uint16_t a, b, sum;
    };
    const Case cases[] = {
        {0x3F80, 0x3B80, 0x3F80},  // 1 + 2^-8: a tie, down to the even one
        {0x3F81, 0x3B80, 0x3F82},  // 1 + 2^-7 + 2^-8: a tie, up to the even one
        {0x3F80, 0x3B81, 0x3F81},  // just above a tie
        {0x7F7F, 0x7F7F, 0x7F80},  // the largest twice: infinity
        {0x7F7F, 0x7B00, 0x7F80},  // the largest, and half its last place: rounds to infinity
        {0x7F80, 0xC000, 0x7F80},  // infinity stays
        {0xFF80, 0x4000, 0xFF80}, {0x8000, 0x8000, 0x8000},  // minus zero
        {0x0001, 0x0001, 0x0002},                            // subnormal
    };
    for (const Case& c : cases) {
      for (const auto sum :
           sum_of<std::uint16_t>(DataType::kBFloat16, std::vector(37, c.a), std::vector(37, c.b)))
        ASSERT_EQ(sum, c.sum) << std::hex << c.a << " + " << c.b;
    }
    // NaNs whose payload lies in the bits that are cut off, and infinity minus infinity.
    for (const Case& c : {Case{0x7FC0, 0x3F80, 0}, Case{0xFFFF, 0x3F80, 0}, Case{0x7F80, 0xFF80, 0},
                          Case{0x7F81, 0x3F80, 0}})
      for (const auto sum :
           sum_of<std::uint16_t>(DataType::kBFloat16, std::vector(37, c.a), std::vector(37, c.b)))
        ASSERT_TRUE(std::isnan(widen(sum))) << std::hex << c.a << " + " << c.b << " = " << sum;
  });
}

TEST(HostDeviceSpecialValues, BFloat16KeepsANanWhosePayloadWouldOverflow) {
  with_each_target([&] {
    // All bits set: adding half a unit in rounding would wrap around to minus zero.
    double factor = 0;
    std::memset(&factor, 0xFF, sizeof(factor));
    factor = std::copysign(factor, 1.0);
    const std::vector<std::uint16_t> ones(37, 0x3F80);
    for (const auto scaled : sum_of(DataType::kBFloat16, ones, ones, {.factor = factor}))
      ASSERT_TRUE(std::isnan(widen(scaled))) << std::hex << scaled;
  });
}

TEST(HostDeviceSpecialValues, BFloat16RoundsEveryKindOfSumOnce) {
  with_each_target([&] {
    // 256 + 1 − 256: rounding after each addition would lose the one.
    const std::vector<std::uint16_t> a(19, 0x4380), b(19, 0x3F80), c(19, 0xC380);
    std::vector<std::uint16_t> sum(19);
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                  reinterpret_cast<const std::byte*>(b.data()),
                                  reinterpret_cast<const std::byte*>(c.data())};
    host_device().reduce(DataType::kBFloat16, ReduceOp::kSum,
                         reinterpret_cast<std::byte*>(sum.data()), sources, 19, {});
    EXPECT_EQ(sum, b);
  });
}

TEST(HostDeviceSpecialValues, IntegersWrapTruncateAndSaturate) {
  with_each_target([&] {
    using Limits = std::numeric_limits<std::int64_t>;
    const auto sum = [](std::int64_t a, std::int64_t b, Scale scale = {}) {
      return sum_of<std::int64_t>(DataType::kInt64, std::vector(11, a), std::vector(11, b), scale);
    };
    const auto all = [](std::int64_t value) { return std::vector<std::int64_t>(11, value); };
    EXPECT_EQ(sum(Limits::max(), 1), all(Limits::min()));
    EXPECT_EQ(sum(7, 4, {.divisor = 2}), all(5));
    EXPECT_EQ(sum(-7, -4, {.divisor = 2}), all(-5));
    EXPECT_EQ(sum(-7, 0, {.factor = 0.5}), all(-3));
    EXPECT_EQ(sum(Limits::min(), 0, {.divisor = -1}), all(Limits::min()));
    EXPECT_EQ(sum(Limits::max(), 0, {.factor = 2}), all(Limits::max()));
    EXPECT_EQ(sum(Limits::min(), 0, {.factor = 2}), all(Limits::min()));
    EXPECT_EQ(sum(1, 0, {.factor = std::nan("")}), all(0));
    // Above the 53 bits of a double, a factor must not lose the last bits.
    EXPECT_EQ(sum((std::int64_t{1} << 60) + 2, 0, {.factor = 0.5}),
              all((std::int64_t{1} << 59) + 1));
  });
}

/// Numbers whose parts have many digits, times their conjugates.
template <class T>
void expect_rounded_products(DataType type) {
  for (const std::size_t count : kSizes) {
    std::vector<std::complex<T>> a(count);
    std::vector<std::complex<T>> b(count);
    std::vector<std::complex<T>> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      a[i] = {static_cast<T>(0.1) * static_cast<T>(i + 1),
              static_cast<T>(0.7) / static_cast<T>(i + 3)};
      b[i] = std::conj(a[i]);
      const volatile T real = a[i].real() * a[i].real();
      const volatile T imaginary = a[i].imag() * a[i].imag();
      expected[i] = {real + imaginary, 0};
    }
    std::vector<std::complex<T>> product(count);
    const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                        reinterpret_cast<const std::byte*>(b.data())};
    host_device().reduce(type, ReduceOp::kProduct, reinterpret_cast<std::byte*>(product.data()),
                         sources, count, {});
    EXPECT_EQ(product, expected) << count;
  }
}

// Fused multiply-adds, which some processors have, would leave an imaginary part.
TEST(HostDeviceSpecialValues, ComplexProductsAreRoundedAlikeEverywhere) {
  with_each_target([] {
    expect_rounded_products<float>(DataType::kComplex64);
    expect_rounded_products<double>(DataType::kComplex128);
  });
}

}  // namespace
}  // namespace kolo::test
