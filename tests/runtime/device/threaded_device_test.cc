// Sums and copies that threads share: the bits of one thread, whatever the number of threads, and
// each element done by one thread.
#include "runtime/device/threaded_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <random>
#include <set>

namespace kolo::test {
namespace {

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

std::byte* bytes(std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// Odd lengths on both sides of the size from which sharing is worth it.
constexpr std::size_t kCounts[] = {
    0, 1, 1000, ThreadedDevice::kLeastBytes / 4 - 1, ThreadedDevice::kLeastBytes / 4, 1'000'003};

void check_all(const Device& device) {
  for (const std::size_t count : kCounts) {
    std::vector<float> a = random_floats(count, 1), b = random_floats(count, 2);
    std::vector<float> alone(count), first(count), second(count);
    const std::byte* const sources[] = {bytes(a), bytes(b)};
    host_device().reduce(DataType::kFloat32, ReduceOp::kSum, bytes(alone), sources, count, {0.3});
    std::byte* const destinations[] = {bytes(first), bytes(second)};
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      device.reduce(DataType::kFloat32, ReduceOp::kSum, destinations, sources, count, {0.3},
                    stores);
      ASSERT_TRUE(first == alone && second == alone) << count;
    }
    device.copy(DataType::kFloat32, bytes(first), bytes(a), count, {});
    device.stream(bytes(second), bytes(b), count * sizeof(float));
    ASSERT_TRUE(first == a && second == b) << count;
  }
}

TEST(ThreadedDevice, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const int threads : {1, 2, 3, 5}) {
    const ThreadedDevice device(host_device(), threads);
    for (int i = 0; i < 3; ++i) check_all(device);
  }
}

TEST(ThreadedDevice, TakesCallsOfSeveralThreads) {
  const ThreadedDevice device(host_device(), 3);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back([&] { check_all(device); });
  for (std::thread& caller : callers) caller.join();
}

/// Records which thread copies what.
class Witness final : public Device {
 public:
  void copy(DataType type, std::byte* destination, const std::byte* source, std::size_t count,
            Scale scale) const override {
    host_device().copy(type, destination, source, count, scale);
    const std::lock_guard lock(mutex_);
    who_.insert(std::this_thread::get_id());
    elements_ += count;
  }
  void stream(std::byte*, const std::byte*, std::size_t) const override {}
  void reduce(DataType, ReduceOp, std::span<std::byte* const>, std::span<const std::byte* const>,
              std::size_t, Scale, Stores) const override {}
  void reduce_mixed(DataType, ReduceOp, std::span<std::byte* const>, std::span<const TypedSource>,
                    std::size_t, Scale) const override {}
  void adasum(DataType, std::byte*, const std::byte*, const std::byte*,
              std::size_t) const override {}

  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> who_;
  mutable std::size_t elements_ = 0;
};

TEST(ThreadedDevice, EachThreadDoesAShare) {
  const Witness witness;
  const ThreadedDevice device(witness, 4);
  std::vector<float> a = random_floats(1'000'003, 1), b(a.size());
  device.copy(DataType::kFloat32, bytes(b), bytes(a), a.size(), {});
  EXPECT_EQ(witness.who_.size(), 4U);
  EXPECT_EQ(witness.elements_, a.size());
  EXPECT_TRUE(a == b);
}

}  // namespace
}  // namespace kolo::test
