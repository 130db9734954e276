#include "runtime/bootstrap/pmi_wire.h"

#include "runtime/base/check.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace kolo {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr std::size_t kShown = 80;  // bytes of a strange line in an error

std::string legible(std::string_view line) {
  std::string text(line.substr(0, kShown));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

}  // namespace

std::string_view PmiAnswer::field(std::string_view name) const {
  const auto it = fields.find(name);
  return it == fields.end() ? std::string_view() : it->second;
}

std::optional<int> PmiAnswer::number(std::string_view name) const {
  const std::string_view text = field(name);
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || rest != end || value < 0) return std::nullopt;
  return value;
}

bool PmiAnswer::succeeded() const {
  const std::string_view code = field("rc");
  return code.empty() || code == "0";
}

Result<PmiAnswer> parse_pmi(std::string_view line) {
  PmiAnswer answer;
  for (std::string_view rest = line; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) continue;  // part of a free-text message
    answer.fields.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  answer.command = answer.field("cmd");
  if (!answer.command.empty() && line.starts_with("cmd=")) return answer;
  return KOLO_ERROR(kTransport, "what came is no PMI: '{}'", legible(line));
}

std::string to_pmi_text(std::string_view bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char byte : bytes) {
    bits = (bits << 8 | static_cast<unsigned char>(byte)) & 0xffffU;
    for (count += 8; count >= 6;) {
      count -= 6;
      text += kAlphabet[bits >> count & 63U];
    }
  }
  if (count > 0) text += kAlphabet[bits << (6 - count) & 63U];
  return text;
}

std::optional<std::string> from_pmi_text(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    const auto value = kAlphabet.find(letter);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6 | static_cast<std::uint32_t>(value)) & 0xffffU;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xffU);
  }
  // The remaining bits must be zeros, and fewer than a letter has.
  if (count >= 6 || (bits & ((1U << count) - 1)) != 0) return std::nullopt;
  return bytes;
}

}  // namespace kolo
