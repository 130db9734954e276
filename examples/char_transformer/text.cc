#include "examples/char_transformer/text.h"

#include <array>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace char_transformer {

Text::Text(const std::filesystem::path& path, std::int64_t least) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream stream;
  stream << file.rdbuf();
  const std::string bytes = std::move(stream).str();
  if (!file || static_cast<std::int64_t>(bytes.size()) < least) {
    throw std::runtime_error(path.string() + ": no text of at least " + std::to_string(least) +
                             " characters can be read; name another file by --text");
  }
  std::array<std::int64_t, 256> number{};
  for (const char c : bytes) number[static_cast<unsigned char>(c)] = 1;
  for (std::size_t i = 0; i < number.size(); ++i) {
    if (number[i] == 0) continue;
    number[i] = characters();
    alphabet_.push_back(static_cast<char>(i));
  }
  numbers_ = torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kInt64);
  auto* to = numbers_.data_ptr<std::int64_t>();
  for (const char c : bytes) *to++ = number[static_cast<unsigned char>(c)];
}

torch::Tensor Text::stretches(std::int64_t count, std::int64_t length) const {
  const auto first = torch::randint(size() - length + 1, {count, 1}, torch::kInt64);
  return numbers_.index({first + torch::arange(length)});
}

std::string Text::spelt(const torch::Tensor& numbers) const {
  std::string text;
  for (std::int64_t i = 0; i < numbers.size(0); ++i) {
    text += alphabet_[static_cast<std::size_t>(numbers[i].item<std::int64_t>())];
  }
  return text;
}

}  // namespace char_transformer
