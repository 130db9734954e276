#include "runtime/base/environment.h"

#include <charconv>

extern char** environ;  // NOLINT: POSIX

namespace kolo {

Environment Environment::of_process() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return Environment(std::move(variables));
}

std::optional<std::string> Environment::get(std::string_view name) const {
  const auto it = variables_.find(name);
  if (it == variables_.end() || it->second.empty()) return std::nullopt;
  return it->second;
}

std::optional<int> Environment::get_int(std::string_view name) const {
  const auto text = get(name);
  int value = 0;
  if (!text) return std::nullopt;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || rest != end || value < 0) return std::nullopt;
  return value;
}

}  // namespace kolo
