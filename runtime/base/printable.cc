#include "runtime/base/printable.h"

#include <fmt/format.h>

#include <cstddef>

namespace kolo {
namespace {

constexpr std::size_t kMost = 4096;
constexpr std::size_t kHead = 1024;
/// Longer than the head: a message begins with the name and ends with what is wrong.
constexpr std::size_t kTail = 2048;

/// Whether `c` is a continuation byte of UTF-8.
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (is_control(c)) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) {
  if (text.size() <= kMost) return escaped(text);
  std::size_t head = kHead;
  std::size_t tail = text.size() - kTail;
  while (head > 0 && continues(text[head])) --head;
  while (tail < text.size() && continues(text[tail])) ++tail;
  return fmt::format("{} … ({} bytes left out) … {}", escaped(text.substr(0, head)), tail - head,
                     escaped(text.substr(tail)));
}

}  // namespace kolo
