#include "examples/char_transformer/text.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace char_transformer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// Number of bytes of the UTF-8 character at the start of `bytes`; 0 if they are not UTF-8 (Unicode
/// 15, table 3-7). Precondition: `bytes` is not empty.
std::size_t length_of_first(std::string_view bytes) {
  const auto at = [bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (first < 0xC2 || first > 0xF4 || bytes.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = at(1);
  const bool is_overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool is_none = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return is_overlong || is_none ? 0 : length;
}

}  // namespace

Text::Text(const std::filesystem::path& path, std::int64_t least) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream stream;
  stream << file.rdbuf();
  const std::string bytes = std::move(stream).str();
  std::vector<std::string_view> text;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t length = length_of_first(rest);
    text.push_back(length > 0 ? rest.substr(0, length) : kReplacement);
    if (length == 0) ++replaced_;
    rest.remove_prefix(std::max<std::size_t>(length, 1));
  }
  if (!file || static_cast<std::int64_t>(text.size()) < least) {
    throw std::runtime_error(path.string() + ": no text of at least " + std::to_string(least) +
                             " characters can be read; name another file by --text");
  }
  std::map<std::string_view, std::int64_t> number;
  for (const std::string_view character : text) number[character] = 0;
  for (auto& [character, its_number] : number) {
    its_number = characters();
    alphabet_.emplace_back(character);
  }
  numbers_ = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kInt64);
  auto* to = numbers_.data_ptr<std::int64_t>();
  for (const std::string_view character : text) *to++ = number.find(character)->second;
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
