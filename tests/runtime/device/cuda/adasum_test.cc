// Adasum's two passes, simulated thread by thread: the host's result except for the order of
// summation, also in place, and equal bits from equal calls wherever the memory lies.
#include "runtime/device/element.h"
#include "tests/runtime/device/cuda/played_device.h"

#include "runtime/device/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace kolo::test {
namespace {

class PlayedAdasum : public testing::TestWithParam<DataType> {};

std::vector<std::byte> numbers(DataType type, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<std::byte> memory((count + 1) * size_of(type));
  for (std::size_t i = 0; i < count; ++i)
    store_element(type, memory.data() + i * size_of(type), normal(random));
  return memory;
}

TEST_P(PlayedAdasum, IsTheHostsButForTheOrder) {
  const DataType type = GetParam();
  const bool is_double = type == DataType::kFloat64;
  const bool is_float = type == DataType::kFloat32;
  const double tolerance = is_double ? 1e-12 : is_float ? 1e-6 : 1e-2;
  for (const std::size_t count : {0U, 1U, 255U, 4097U, 1'200'000U}) {
    const auto a = numbers(type, count, 1);
    const auto b = numbers(type, count, 2);
    auto wanted = a;
    host_device().adasum(type, wanted.data(), a.data(), b.data(), count);
    auto played = a;
    play_adasum(type, played.data(), played.data(), b.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = i * size_of(type);
      const double x = load_element(type, wanted.data() + at);
      ASSERT_NEAR(load_element(type, played.data() + at), x, tolerance * (1 + std::abs(x))) << i;
    }
    // Again, with the memory shifted by one element.
    const std::size_t shift = size_of(type);
    std::vector<std::byte> moved(a.size() + shift);
    std::memcpy(moved.data() + shift, a.data(), count * size_of(type));
    play_adasum(type, moved.data() + shift, moved.data() + shift, b.data(), count);
    EXPECT_EQ(std::memcmp(moved.data() + shift, played.data(), count * size_of(type)), 0);
  }
}

TEST_P(PlayedAdasum, AVectorOfZerosLeavesTheOther) {
  const DataType type = GetParam();
  const auto a = numbers(type, 1000, 1);
  const std::vector<std::byte> zeros(a.size());
  std::vector<std::byte> played(a.size());
  play_adasum(type, played.data(), a.data(), zeros.data(), 1000);
  EXPECT_EQ(std::memcmp(played.data(), a.data(), 1000 * size_of(type)), 0);
  play_adasum(type, played.data(), zeros.data(), a.data(), 1000);
  EXPECT_EQ(std::memcmp(played.data(), a.data(), 1000 * size_of(type)), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, PlayedAdasum,
                         testing::Values(DataType::kFloat32, DataType::kFloat64, DataType::kFloat16,
                                         DataType::kBFloat16),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace kolo::test
