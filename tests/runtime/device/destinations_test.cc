// Results that go to several destinations at once, through the caches or past them: all get the
// bits of a single destination, and nothing beside them is touched.
#include "tests/runtime/device/element_cases.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace kolo::test {
namespace {

constexpr std::size_t kMargin = 64;
constexpr std::byte kUntouched{0x5A};

/// Memory that begins `shift` bytes after a boundary of 64, with a margin around it.
class Place {
 public:
  Place(std::size_t bytes, std::size_t shift) : memory_(bytes + 3 * kMargin, kUntouched) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = kMargin + (kMargin - address % kMargin) % kMargin + shift;
    end_ = begin_ + bytes;
  }

  std::byte* data() { return memory_.data() + begin_; }
  bool is_untouched_around() const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if ((i < begin_ || i >= end_) && memory_[i] != kUntouched) return false;
    return true;
  }

 private:
  std::vector<std::byte> memory_;
  std::size_t begin_;
  std::size_t end_;
};

template <class C>
class Destinations : public testing::Test {};
using Types = testing::Types<Float32, Float64, BFloat16, Float16, Int64, Int32, Int16, Int8, UInt8,
                             Bool, Complex64, Complex128>;
TYPED_TEST_SUITE(Destinations, Types);

/// Checks reduce() with one destination and with three: one in cache lines of its own, one across
/// cache lines, and a source.
template <class C>
void check(ReduceOp op, std::size_t count, Scale scale, Stores stores, std::size_t shift) {
  using Memory = typename C::Memory;
  std::mt19937 random(7);
  const std::size_t bytes = count * sizeof(Memory);
  std::vector<Place> inputs(3, Place(bytes, 0));
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    inputs[k] = Place(bytes, k == 1 ? sizeof(Memory) : 0);
    for (std::size_t i = 0; i < count; ++i) {
      const Memory value = random_element<C>(random);
      std::memcpy(inputs[k].data() + i * sizeof(Memory), &value, sizeof(Memory));
    }
  }
  const std::byte* sources[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
  Place alone(bytes, 0);
  host_device().reduce(C::kType, op, alone.data(), sources, count, scale);

  Place first(bytes, 0);
  Place second(bytes, shift);
  std::byte* const destinations[] = {first.data(), second.data(), inputs[2].data()};
  host_device().reduce(C::kType, op, destinations, sources, count, scale, stores);
  for (std::byte* const destination : destinations)
    ASSERT_EQ(std::memcmp(destination, alone.data(), bytes), 0)
        << to_string(op) << " of " << count << ", shift " << shift;
  EXPECT_TRUE(first.is_untouched_around() && second.is_untouched_around() &&
              inputs[2].is_untouched_around());
}

TYPED_TEST(Destinations, AllGetTheSameBits) {
  with_each_target([&] {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      if (!is_supported(TypeParam::kType, op)) continue;
      for (const std::size_t count : {0U, 1U, 63U, 257U, 5000U}) {
        for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
          for (const std::size_t shift : {std::size_t{0}, sizeof(typename TypeParam::Memory)}) {
            check<TypeParam>(op, count, {}, stores, shift);
            if (TypeParam::kType == DataType::kBool) continue;
            check<TypeParam>(op, count, {.factor = 0.5, .divisor = 3}, stores, shift);
          }
        }
      }
    }
  });
}

TEST(Streams, AreTheBytesAsTheyAre) {
  with_each_target([] {
    for (const std::size_t bytes : {0U, 1U, 64U, 1000U, 70'000U}) {
      for (const std::size_t shift : {0U, 1U}) {
        Place source(bytes, 0);
        for (std::size_t i = 0; i < bytes; ++i) source.data()[i] = static_cast<std::byte>(i * 7);
        Place destination(bytes, shift);
        host_device().stream(destination.data(), source.data(), bytes);
        EXPECT_EQ(std::memcmp(destination.data(), source.data(), bytes), 0) << bytes;
        EXPECT_TRUE(destination.is_untouched_around());
      }
    }
  });
}

}  // namespace
}  // namespace kolo::test
