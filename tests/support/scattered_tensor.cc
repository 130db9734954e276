#include "tests/support/scattered_tensor.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace kolo::test {
namespace {

constexpr std::uint64_t kGap = 3;
constexpr std::byte kPattern{0x5A};

void store(DataType type, std::byte* to, double value) {
  const auto put = [&](auto element) { std::memcpy(to, &element, sizeof(element)); };
  switch (type) {
    case DataType::kFloat32:
      return put(static_cast<float>(value));
    case DataType::kFloat64:
      return put(value);
    case DataType::kInt64:
      return put(static_cast<std::int64_t>(value));
    case DataType::kBFloat16: {  // of values that need no rounding
      const auto wide = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &wide, sizeof(bits));
      return put(static_cast<std::uint16_t>(bits >> 16));
    }
  }
}

double load(DataType type, const std::byte* from) {
  const auto get = [&](auto element) {
    std::memcpy(&element, from, sizeof(element));
    return element;
  };
  switch (type) {
    case DataType::kFloat32:
      return get(float{});
    case DataType::kFloat64:
      return get(double{});
    case DataType::kInt64:
      return static_cast<double>(get(std::int64_t{}));
    case DataType::kBFloat16: {
      const std::uint32_t bits = std::uint32_t{get(std::uint16_t{})} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
  }
  return 0;
}

}  // namespace

Tensor::Tensor(DataType type, std::uint64_t count, int pieces, unsigned seed)
    : type_(type),
      memory_((count + static_cast<std::uint64_t>(pieces) * kGap) * size_of(type), kPattern) {
  std::mt19937 generator(seed);
  std::vector<std::uint64_t> cuts = {0, count};
  for (int i = 1; i < pieces; ++i)
    cuts.push_back(std::uniform_int_distribution<std::uint64_t>(0, count)(generator));
  std::sort(cuts.begin(), cuts.end());
  std::uint64_t place = 0;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i, place += kGap) {
    const std::uint64_t length = cuts[i + 1] - cuts[i];
    segments_.append(memory_.data() + place * size_of(type), length);
    place += length;
  }
}

void Tensor::set(std::uint64_t i, double value) { store(type_, at(i), value); }
double Tensor::get(std::uint64_t i) const { return load(type_, at(i)); }

std::size_t Tensor::bytes_of_pattern() const {
  return static_cast<std::size_t>(std::count(memory_.begin(), memory_.end(), kPattern));
}

std::byte* Tensor::at(std::uint64_t i) const { return segments_.rest_at(i, size_of(type_)).data; }

}  // namespace kolo::test
