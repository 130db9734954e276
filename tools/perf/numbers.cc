#include "tools/perf/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace kolo::perf {
namespace {

/// How often a unit doubles a byte: 10 for "K"; nothing if there is no such unit.
std::optional<int> doublings_of(std::string_view unit) {
  const std::string name = CLI::detail::to_lower(std::string(unit));
  if (name.empty() || name == "b") return 0;
  const auto place = std::string_view("kmgtp").find(name.front());
  const std::string_view rest = std::string_view(name).substr(1);
  const bool good = rest.empty() || rest == "i" || rest == "b" || rest == "ib";
  if (place == std::string_view::npos || !good) return std::nullopt;
  return 10 * (static_cast<int>(place) + 1);
}

/// Nothing if the text is no number of bytes, or more than kMaxBytes.
std::optional<std::uint64_t> bytes_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  const std::optional<int> doublings = doublings_of(text);
  if (!doublings || number > kMaxBytes >> *doublings) return std::nullopt;
  return number << *doublings;
}

}  // namespace

CLI::Validator as_bytes(std::uint64_t least) {
  const auto replace = [least](std::string& text) -> std::string {
    const std::optional<std::uint64_t> bytes = bytes_of(text);
    if (!bytes || *bytes < least) {
      return fmt::format("'{}' is no size from {} to 1P (digits, then perhaps K, M, G, T or P)",
                         text, least);
    }
    text = std::to_string(*bytes);
    return {};
  };
  return {replace, "BYTES"};
}

CLI::Validator number_within(double least, double most) {
  const auto check = [least, most](std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    // NaN is in no range.
    if (!text.empty() && *end == '\0' && number >= least && number <= most) return {};
    return fmt::format("'{}' is no number from {:g} to {:g}", text, least, most);
  };
  return {check, fmt::format("{:g} to {:g}", least, most)};
}

}  // namespace kolo::perf
