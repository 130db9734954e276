#include "examples/common/options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

namespace examples {

CLI::Validator whole(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    char* end = nullptr;
    errno = 0;
    const long long number = std::strtoll(text.c_str(), &end, 0);  // as CLI11 reads it
    const bool is_number = !text.empty() && *end == '\0' && errno == 0;
    if (is_number && number >= least && number <= most) return {};
    return fmt::format("'{}' is no whole number from {} to {}", text, least, most);
  };
  return {check, fmt::format("FROM {}", least)};
}

CLI::Validator positive() {
  const auto check = [](std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && std::isfinite(number) && number > 0) return {};
    return fmt::format("'{}' is no number above 0", text);
  };
  return {check, "ABOVE 0"};
}

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace examples
