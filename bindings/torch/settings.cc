#include <kolo/torch/settings.h>

#include "bindings/torch/tensor_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

namespace kolo {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Where a comment begins, outside quotes and after a blank; or the end.
std::size_t comment_in(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (line[i] == '\'' || line[i] == '"') {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return i;
    }
  }
  return line.size();
}

/// Without its quotes; an unclosed one is no value.
bool unquote(std::string& text) {
  if (text.empty() || (text.front() != '\'' && text.front() != '"')) return true;
  if (text.size() < 2 || text.back() != text.front()) return false;
  text = text.substr(1, text.size() - 2);
  return true;
}

struct Level {
  std::size_t indent;
  std::string prefix;
};

}  // namespace

Settings Settings::from_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    raise(ErrorCode::kInvalidArgument,
          path.string() + ": the file of settings is missing, empty or cannot be read");
  }
  return from_text(text.str(), path.string());
}

Settings Settings::from_text(const std::string& text, const std::string& name) {
  Settings settings;
  settings.name_ = name;
  std::vector<Level> levels{{0, ""}};
  std::string open;  // a key without a value, whose map may follow
  std::istringstream stream(text);
  std::string line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const auto wrong = [&](const std::string& what) {
      raise(ErrorCode::kInvalidArgument, name + ", line " + std::to_string(number) + ": " + what);
    };
    line = line.substr(0, comment_in(line));
    const std::string content = trimmed(line);
    if (content.empty() || content == "---" || content == "...") continue;
    const std::size_t indent = line.find_first_not_of(' ');
    if (line[indent] == '\t') wrong("a tab indents it; indent by spaces");
    if (content.starts_with("- ") || content == "-") {
      wrong("lists are not understood; write one 'key: value' a line");
    }
    if (indent > levels.back().indent && !open.empty()) {
      levels.push_back({indent, levels.back().prefix + open + "."});
    }
    while (indent < levels.back().indent) levels.pop_back();
    if (indent != levels.back().indent) wrong("its indentation fits none above");
    open.clear();
    const auto colon = content.find(':');
    if (colon == std::string::npos || colon == 0 ||
        (colon + 1 < content.size() && content[colon + 1] != ' ')) {
      wrong("'" + content + "' is no 'key: value'");
    }
    std::string key = trimmed(content.substr(0, colon));
    std::string value = trimmed(content.substr(colon + 1));
    if (!unquote(key)) wrong("a quote is not closed");
    if (value.empty()) {
      open = key;
      continue;
    }
    if (value == "null" || value == "~") continue;
    if (!unquote(value)) wrong("a quote is not closed");
    key = levels.back().prefix + key;
    if (settings.has(key)) wrong("'" + key + "' is there twice");
    settings.items_.emplace_back(key, value);
  }
  return settings;
}

bool Settings::has(const std::string& key) const {
  return std::any_of(items_.begin(), items_.end(),
                     [&](const auto& item) { return item.first == key; });
}

const std::string& Settings::text(const std::string& key) const {
  for (const auto& [name, value] : items_) {
    if (name == key) return value;
  }
  raise(ErrorCode::kInvalidArgument, name_ + ": '" + key + "' is missing");
}

bool Settings::boolean(const std::string& key) const {
  std::string value = text(key);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (value == "true" || value == "yes" || value == "on") return true;
  if (value == "false" || value == "no" || value == "off") return false;
  refuse(key, "true or false");
}

std::int64_t Settings::integer(const std::string& key) const {
  const std::string& value = text(key);
  std::int64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size()) refuse(key, "a whole number");
  return result;
}

double Settings::number(const std::string& key) const {
  const std::string& value = text(key);
  double result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc() || end != value.data() + value.size()) refuse(key, "a number");
  return result;
}

void Settings::refuse(const std::string& key, const std::string& wanted) const {
  raise(ErrorCode::kInvalidArgument,
        name_ + ": '" + key + "' is '" + text(key) + "', not " + wanted);
}

}  // namespace kolo
