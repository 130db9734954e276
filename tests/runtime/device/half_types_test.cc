// float16 and bfloat16: the conversions of all values, and the vector conversions against them,
// with each instruction set of this processor.
#include "tests/runtime/device/element_cases.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace kolo::test {
namespace {

/// Every value comes back; a number between two neighbours becomes the nearer one, or the even one.
template <class C>
void check_rounding(std::uint16_t infinity) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = C::load(half);
    const bool is_nan = (bits & 0x7FFF) > infinity;
    ASSERT_EQ(std::isnan(value), is_nan);
    if (is_nan) {
      ASSERT_TRUE(std::isnan(C::load(C::store(value))));
      continue;
    }
    ASSERT_EQ(C::store(value), half) << bits;
    // The neighbour away from zero; above the largest value there is only infinity.
    if ((bits & 0x7FFF) + 1U >= infinity) continue;
    const float next = C::load(static_cast<std::uint16_t>(bits + 1));
    const float middle = value + (next - value) / 2;
    const auto even = static_cast<std::uint16_t>(bits + (bits & 1));
    ASSERT_EQ(C::store(middle), even) << bits;
    ASSERT_EQ(C::store(std::nextafter(middle, value)), half) << bits;
    ASSERT_EQ(C::store(std::nextafter(middle, next)), bits + 1) << bits;
  }
}

TEST(BFloat16, EveryValueSurvivesAndRoundsToTheNearestEven) { check_rounding<BFloat16>(0x7F80); }

TEST(Float16, EveryValueSurvivesAndRoundsToTheNearestEven) {
  check_rounding<Float16>(0x7C00);
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

template <class C>
void check_scaled_vectors() {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  with_each_target([&] {
    // A factor of 2^-7 makes subnormals and ties among them; the other factors round at every bit.
    // Rounding the NaN of all ones would turn it into a zero.
    const auto all_ones = std::bit_cast<double>(~std::uint64_t{0});
    for (const double factor : {0x1p-7, 0.3, 1.5, -3.0, 1e-3, all_ones}) {
      std::vector<std::uint16_t> scaled(all.size());
      host_device().copy(C::kType, reinterpret_cast<std::byte*>(scaled.data()),
                         reinterpret_cast<const std::byte*>(all.data()), all.size(),
                         {.factor = factor});
      for (std::size_t i = 0; i < all.size(); ++i) {
        const float expected = C::load(all[i]) * static_cast<float>(factor);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(C::load(scaled[i]))) << i;
        } else {
          ASSERT_EQ(scaled[i], C::store(expected)) << i << " times " << factor;
        }
      }
    }
  });
}

TEST(BFloat16, ScaledVectorsRoundAsSingleElementsDo) { check_scaled_vectors<BFloat16>(); }
TEST(Float16, ScaledVectorsRoundAsSingleElementsDo) { check_scaled_vectors<Float16>(); }

/// Sums and products of both widths into both, against single elements in float32.
template <class C>
void check_mixed(DataType half) {
  std::vector<std::uint16_t> narrow(0x10000 + 5);
  std::vector<float> wide(narrow.size()), third(narrow.size());
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    narrow[i] = static_cast<std::uint16_t>(i);
    wide[i] = std::ldexp(static_cast<float>(i % 8191) - 4000.3F, static_cast<int>(i % 40) - 20);
    third[i] = static_cast<float>(i % 13) / 7;
  }
  // NaNs with any payload, as another processor makes them.
  wide[3] = std::bit_cast<float>(0x7FFFFFFFU);
  wide[9] = std::bit_cast<float>(0xFF800001U);
  const auto bytes = [](const auto& memory) {
    return reinterpret_cast<const std::byte*>(memory.data());
  };
  const TypedSource all[] = {
      {bytes(narrow), half}, {bytes(wide), DataType::kFloat32}, {bytes(third), DataType::kFloat32}};
  with_each_target([&] {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct})
      for (const std::size_t sources : {1U, 2U, 3U})
        for (const std::int64_t divisor : {1, 3})
          for (const DataType target : {half, DataType::kFloat32}) {
            // The second destination is a source, where both are float32.
            std::vector<float> results[2] = {wide, wide};
            TypedSource from[] = {all[0], all[1], all[2]};
            if (target == DataType::kFloat32) from[1].data = bytes(results[1]);
            std::byte* const destinations[] = {reinterpret_cast<std::byte*>(results[0].data()),
                                               reinterpret_cast<std::byte*>(results[1].data())};
            host_device().reduce_mixed(target, op, destinations, std::span(from).first(sources),
                                       wide.size(), {.divisor = divisor});
            const auto factor = static_cast<float>(1.0 / static_cast<double>(divisor));
            for (std::size_t i = 0; i < wide.size(); ++i) {
              const float terms[] = {C::load(narrow[i]), wide[i], third[i]};
              float expected = terms[0];
              for (std::size_t k = 1; k < sources; ++k)
                expected = op == ReduceOp::kSum ? expected + terms[k] : expected * terms[k];
              expected *= factor;
              for (const std::vector<float>& result : results) {
                const auto* const halves = reinterpret_cast<const std::uint16_t*>(result.data());
                const bool is_half = target == half;
                const float found = is_half ? C::load(halves[i]) : result[i];
                if (is_half) expected = C::load(C::store(expected));
                ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
                    << i << ": " << found << " instead of " << expected << ", " << sources
                    << " sources, " << to_string(op) << " into " << to_string(target);
              }
            }
          }
  });
}

TEST(MixedSums, OfHalfTypesAndFloat32RoundOnce) {
  check_mixed<BFloat16>(DataType::kBFloat16);
  check_mixed<Float16>(DataType::kFloat16);
}

}  // namespace
}  // namespace kolo::test
