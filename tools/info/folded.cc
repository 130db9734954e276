#include "tools/info/folded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace kolo::info {
namespace {

constexpr std::size_t kColumns = 80;
constexpr std::size_t kLabel = 17;  ///< columns of a row's label

/// Counts the bytes that begin a UTF-8 character.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string folded(std::string_view line, std::string_view indent) {
  std::string text;
  std::string_view before;  // what the present line of the result begins with
  while (columns_of(before) + columns_of(line) > kColumns) {
    // Break at the last blank that fits, but not inside the line's own indentation; if none fits,
    // at the first blank.
    std::size_t cut = line.npos;
    for (std::size_t at = line.find_first_not_of(' '); at != line.npos;) {
      at = line.find(' ', at);
      if (at == line.npos) break;
      const bool fits = columns_of(before) + columns_of(line.substr(0, at)) <= kColumns;
      if (!fits && cut != line.npos) break;
      cut = at;
      if (!fits) break;
      at = line.find_first_not_of(' ', at);
    }
    if (cut == line.npos) break;
    text += before;
    text += line.substr(0, cut);
    text += '\n';
    line.remove_prefix(std::min(line.find_first_not_of(' ', cut), line.size()));
    before = indent;
  }
  text += before;
  text += line;
  return text;
}

void print_row(std::string_view label, std::string_view text) {
  fmt::print("{}\n",
             folded(fmt::format("{:<{}}{}", label, kLabel, text), std::string(kLabel, ' ')));
}

}  // namespace kolo::info
