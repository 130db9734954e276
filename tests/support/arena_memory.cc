#include "tests/support/arena_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace kolo::test {

void set_elements(std::span<float> memory, std::size_t rank, std::size_t first) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = element(rank, first + i);
}

void add_elements(std::span<float> memory, std::size_t rank, std::size_t first) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] += element(rank, first + i);
}

std::string difference(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size())
    return fmt::format("{} elements instead of {}", actual.size(), expected.size());
  const auto wrong = std::mismatch(actual.begin(), actual.end(), expected.begin());
  if (wrong.first == actual.end()) return "";
  return fmt::format("element {} of {} is {} instead of {}", wrong.first - actual.begin(),
                     actual.size(), *wrong.first, *wrong.second);
}

}  // namespace kolo::test
