#include "runtime/observe/json_text.h"

#include <cstddef>
#include <iterator>

namespace kolo {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// A well-formed UTF-8 sequence (Unicode, table 3-7): its first byte, and its second, whose range
/// excludes overlong forms, surrogates and values beyond U+10FFFF. Any others are 0x80 to 0xBF.
struct Utf8Form {
  unsigned char first, last;
  std::size_t length;
  unsigned char second_first = 0x80, second_last = 0xBF;
};
constexpr Utf8Form kUtf8Forms[] = {
    {0x00, 0x7F, 1},
    {0xC2, 0xDF, 2},
    {0xE0, 0xE0, 3, 0xA0},
    {0xE1, 0xEC, 3},
    {0xED, 0xED, 3, 0x80, 0x9F},
    {0xEE, 0xEF, 3},
    {0xF0, 0xF0, 4, 0x90},
    {0xF1, 0xF3, 4},
    {0xF4, 0xF4, 4, 0x80, 0x8F},
};

/// Length of the UTF-8 sequence at the beginning of `text`; 0 if there is no valid one.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto in = [](unsigned char value, unsigned char first, unsigned char last) {
    return first <= value && value <= last;
  };
  for (const Utf8Form& form : kUtf8Forms) {
    if (!in(byte(0), form.first, form.last)) continue;
    if (form.length > text.size()) return 0;
    if (form.length > 1 && !in(byte(1), form.second_first, form.second_last)) return 0;
    for (std::size_t i = 2; i < form.length; ++i)
      if (!in(byte(i), 0x80, 0xBF)) return 0;
    return form.length;
  }
  return 0;
}

}  // namespace

void append_json_text(fmt::memory_buffer& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (length == 0) {
      out.append(kReplacement);
      text.remove_prefix(1);
      continue;
    }
    if (first == '"' || first == '\\') {
      out.push_back('\\');
      out.push_back(text.front());
    } else if (first < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", first);
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out.push_back('"');
}

}  // namespace kolo
