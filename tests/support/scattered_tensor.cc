#include "tests/support/scattered_tensor.h"

#include "runtime/device/element.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace kolo::test {
namespace {

constexpr std::uint64_t kGap = 3;
constexpr std::byte kPattern{0x5A};

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

void Tensor::set(std::uint64_t i, double value) { store_element(type_, at(i), value); }
double Tensor::get(std::uint64_t i) const { return load_element(type_, at(i)); }

std::size_t Tensor::bytes_of_pattern() const {
  return static_cast<std::size_t>(std::count(memory_.begin(), memory_.end(), kPattern));
}

std::byte* Tensor::at(std::uint64_t i) const { return segments_.rest_at(i, size_of(type_)).data; }

}  // namespace kolo::test
