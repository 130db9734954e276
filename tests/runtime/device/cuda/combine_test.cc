// The kernels, simulated thread by thread, do what the host's device does, to the bit: every type
// and operation, any number of sources and destinations, wherever the memory lies. In place, an
// element that two threads processed would be combined twice.
#include "tests/runtime/device/cuda/played_device.h"
#include "tests/runtime/device/cuda/scene.h"

#include <gmock/gmock.h>

namespace kolo::test {
namespace {

using testing::HasSubstr;

template <class C>
void check(const Combination& what, const std::vector<std::uint64_t>& counts, Lie lie,
           bool in_place) {
  std::mt19937 random(17);
  Scene played(sizeof(typename C::Memory), what, counts, lie, in_place);
  Scene wanted = played;
  played.fill<C>(random);
  std::memcpy(wanted.begin(), played.begin(), played.bytes());
  wanted.combine_on_host();
  const Result<int> launches = play_combine(what, played.pieces());
  ASSERT_TRUE(launches.ok()) << launches.error().message;
  ASSERT_EQ(std::memcmp(played.begin(), wanted.begin(), played.bytes()), 0)
      << to_string(what.type) << " " << to_string(what.op) << ", " << what.sources << " to "
      << what.destinations << ", lie " << static_cast<int>(lie) << ", in place " << in_place
      << ", scaled " << !what.postscale.is_identity();
}

template <class C>
class PlayedCombine : public testing::Test {};
using Types = testing::Types<Float32, Float64, BFloat16, Float16, Int64, Int32, Int16, Int8, UInt8,
                             Bool, Complex64, Complex128>;
TYPED_TEST_SUITE(PlayedCombine, Types);

TYPED_TEST(PlayedCombine, IsTheHosts) {
  const std::vector<std::uint64_t> counts = {1, 0, 3, 7, 15, 16, 17, 31, 64, 0, 100, 1001, 5003};
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    if (!is_supported(TypeParam::kType, op)) continue;
    for (const std::uint32_t sources : {1U, 2U, 4U, 8U}) {
      for (const std::uint32_t destinations : {1U, 2U, 3U}) {
        for (const Lie lie : {Lie::kAligned, Lie::kAlike, Lie::kApart}) {
          const bool in_place = destinations != 2;
          Combination what{
              .type = TypeParam::kType, .op = op, .sources = sources, .destinations = destinations};
          check<TypeParam>(what, counts, lie, in_place);
          if (TypeParam::kType == DataType::kBool) continue;
          what.prescaled = 0b10100101 & ((1U << sources) - 1);
          what.prescale = {.factor = 0.75, .divisor = 2};
          what.postscale = {.factor = 0.7, .divisor = 3};
          check<TypeParam>(what, counts, lie, in_place);
        }
      }
    }
  }
}

TYPED_TEST(PlayedCombine, TakesThousandsOfPieces) {
  std::vector<std::uint64_t> counts;
  for (std::uint64_t i = 0; i < 3000; ++i) counts.push_back(i * 7 % 71);
  check<TypeParam>({.type = TypeParam::kType, .sources = 2}, counts, Lie::kAlike, true);
}

TEST(PlayedSpecials, AreTheHosts) {
  // All half numbers with their neighbours, including NaNs and zeros of both signs.
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    std::vector<std::uint16_t> a(65536);
    std::vector<std::uint16_t> b(65536);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<std::uint16_t>(i);
      b[i] = static_cast<std::uint16_t>(i * 40503);
    }
    const std::byte* const sources[] = {reinterpret_cast<std::byte*>(a.data()),
                                        reinterpret_cast<std::byte*>(b.data())};
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      std::vector<std::uint16_t> played(65536);
      std::vector<std::uint16_t> wanted(65536);
      std::byte* const to = reinterpret_cast<std::byte*>(played.data());
      const std::uint64_t count = 65536;
      ASSERT_TRUE(
          play_combine({.type = type, .op = op, .sources = 2}, {sources, {&to, 1}, {&count, 1}})
              .ok());
      host_device().reduce(type, op, reinterpret_cast<std::byte*>(wanted.data()), sources, count,
                           {});
      for (std::size_t i = 0; i < count; ++i) {
        const auto number = type == DataType::kFloat16 ? float_of_float16 : float_of_bfloat16;
        if (std::isnan(number(wanted[i]))) {
          ASSERT_TRUE(std::isnan(number(played[i]))) << to_string(op) << " " << i;
        } else {
          ASSERT_EQ(played[i], wanted[i]) << to_string(op) << " of " << a[i] << ", " << b[i];
        }
      }
    }
  }
}

template <class Half>
void check_casts() {
  std::mt19937 random(5);
  for (const std::size_t shift : {0U, 1U, 4U}) {
    for (const std::uint64_t count : {0U, 1U, 9U, 4099U}) {
      std::vector<float> wide(count + shift);
      std::vector<std::uint16_t> half(count);
      for (float& value : wide) value = static_cast<float>(random()) * 1e-5F - 2e4F;
      const auto* const from = reinterpret_cast<const std::byte*>(wide.data() + shift);
      auto* const to = reinterpret_cast<std::byte*>(half.data());
      const Combination narrow{.type = Half::kType,
                               .source_type = DataType::kFloat32,
                               .postscale = {.factor = 1, .divisor = 3}};
      ASSERT_TRUE(play_combine(narrow, {{&from, 1}, {&to, 1}, {&count, 1}}).ok());
      const auto third = static_cast<float>(1.0 / 3);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(half[i], Half::store(wide[i + shift] * third)) << i;

      const auto* const narrowed = reinterpret_cast<const std::byte*>(half.data());
      auto* const back = reinterpret_cast<std::byte*>(wide.data() + shift);
      const Combination widen{
          .type = DataType::kFloat32, .source_type = Half::kType, .postscale = {.factor = 3}};
      ASSERT_TRUE(play_combine(widen, {{&narrowed, 1}, {&back, 1}, {&count, 1}}).ok());
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(wide[i + shift], Half::load(half[i]) * 3) << i;
    }
  }
}

TEST(PlayedCasts, RoundOnce) {
  check_casts<Float16>();
  check_casts<BFloat16>();
}

/// Three sources, with the host's result to the bit.
template <class Half>
void check_partial_sums() {
  constexpr std::uint64_t kCount = 4099;
  std::mt19937 random(7);
  std::vector<std::vector<std::uint16_t>> halves(3, std::vector<std::uint16_t>(kCount));
  std::vector<std::vector<float>> sums(3, std::vector<float>(kCount));
  for (auto& memory : halves)
    for (std::uint16_t& value : memory)
      value = Half::store(static_cast<float>(random() % 4096) / 8 - 200);
  for (auto& memory : sums)
    for (float& value : memory) value = static_cast<float>(random()) * 1e-6F - 2e3F;
  const auto check = [&](const auto& memory, DataType from, DataType to, ReduceOp op) {
    std::vector<const std::byte*> sources;
    std::vector<TypedSource> typed;
    for (const auto& source : memory) {
      sources.push_back(reinterpret_cast<const std::byte*>(source.data()));
      typed.push_back({sources.back(), from});
    }
    std::vector<std::byte> played(kCount * size_of(to)), wanted(played.size());
    std::byte* const target = played.data();
    std::byte* const expected = wanted.data();
    const Combination what{.type = to,
                           .source_type = from,
                           .op = op,
                           .sources = 3,
                           .postscale = {.factor = 1, .divisor = 3}};
    const Result<int> done = play_combine(what, {sources, {&target, 1}, {&kCount, 1}});
    ASSERT_TRUE(done.ok()) << done.error().message;
    host_device().reduce_mixed(to, op, {&expected, 1}, typed, kCount, what.postscale);
    EXPECT_TRUE(played == wanted) << to_string(op) << " of " << to_string(from);
  };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct}) {
    check(halves, Half::kType, DataType::kFloat32, op);
    check(sums, DataType::kFloat32, Half::kType, op);
  }
}

TEST(PlayedCasts, SumHalfTypesIntoFloat32AndBack) {
  check_partial_sums<Float16>();
  check_partial_sums<BFloat16>();
}

template <class T>
void check_scales(DataType type) {
  std::mt19937_64 random(3);
  std::vector<T> values = {0,
                           1,
                           3,
                           5,
                           99,
                           std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::max(),
                           static_cast<T>(-1),
                           static_cast<T>(-7)};
  for (int i = 0; i < 300; ++i) values.push_back(static_cast<T>(random() >> random() % 64));
  std::vector<Scale> scales = {
      {1, 3},         {1, -1},    {1, 1LL << 31}, {1, -(1LL << 40)}, {0.1, 1},  {1.0 / 3, 1},
      {-2.0 / 3, 5},  {1e300, 1}, {5e-324, 1},    {-1e-9, 1},        {NAN, 2},  {INFINITY, 1},
      {-INFINITY, 1}, {0, 1},     {0x1p63, 1},    {-0x1p64, 1},      {1e18, -1}};
  for (int i = 0; i < 300; ++i)
    scales.push_back(
        {std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 80) - 100),
         static_cast<std::int64_t>(random() % 9) + 1});
  std::vector<T> played(values.size());
  std::vector<T> wanted(values.size());
  for (const Scale& scale : scales) {
    const auto* const from = reinterpret_cast<const std::byte*>(values.data());
    auto* const to = reinterpret_cast<std::byte*>(played.data());
    const std::uint64_t count = values.size();
    ASSERT_TRUE(
        play_combine({.type = type, .postscale = scale}, {{&from, 1}, {&to, 1}, {&count, 1}}).ok());
    host_device().copy(type, reinterpret_cast<std::byte*>(wanted.data()), from, count, scale);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(played[i], wanted[i]) << to_string(type) << " " << +values[i] << " × "
                                      << scale.factor << " / " << scale.divisor;
  }
}

TEST(PlayedScales, OfIntegersAreThoseOfALongDouble) {
  check_scales<std::int64_t>(DataType::kInt64);
  check_scales<std::int32_t>(DataType::kInt32);
  check_scales<std::int16_t>(DataType::kInt16);
  check_scales<std::int8_t>(DataType::kInt8);
  check_scales<std::uint8_t>(DataType::kUInt8);
}

TEST(PlayedCombination, RefusesWhatItCannotDo) {
  alignas(8) std::byte memory[64] = {};
  const auto message = [&](const Combination& what, std::size_t shift = 0) {
    std::vector<const std::byte*> sources(what.sources, memory);
    std::byte* to = memory + 32 + shift;
    const std::uint64_t count = 1;
    const Result<int> done = play_combine(what, {sources, {&to, 1}, {&count, 1}});
    return done.ok() ? "" : done.error().message;
  };
  EXPECT_THAT(message({.type = DataType::kBool, .postscale = {.factor = 2}}), HasSubstr("bool"));
  EXPECT_THAT(message({.type = DataType::kFloat16, .source_type = DataType::kInt32}),
              HasSubstr("int32 cannot become float16"));
  EXPECT_THAT(message({.type = DataType::kFloat16,
                       .source_type = DataType::kFloat32,
                       .op = ReduceOp::kMin,
                       .sources = 2}),
              HasSubstr("by min"));
  EXPECT_THAT(message({.type = DataType::kInt64}, 4), HasSubstr("not aligned to int64"));
  EXPECT_EQ(message({.type = DataType::kComplex128}, 8), "");
}

}  // namespace
}  // namespace kolo::test
