#include <kolo/torch/settings.h>

#include "bindings/torch/tensors/tensor_memory.h"

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

/// Position of the comment (outside quotes, after a blank), or the end of the line.
std::size_t comment_in(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool after_blank = i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t';
    if (quote != 0) {
      if (line[i] == '\'' && line.compare(i, 2, "''") == 0) {
        ++i;
      } else if (line[i] == quote) {
        quote = 0;
      }
    } else if (after_blank && (line[i] == '\'' || line[i] == '"')) {
      quote = line[i];
    } else if (after_blank && line[i] == '#') {
      return i;
    }
  }
  return line.size();
}

/// Removes the quotes; returns what is wrong with them, or nothing.
std::string unquote(std::string& text) {
  if (text.empty() || (text.front() != '\'' && text.front() != '"')) return {};
  const char quote = text.front();
  if (text.size() < 2 || text.back() != quote) return "a quote is not closed";
  text = text.substr(1, text.size() - 2);
  if (quote == '"') {
    if (text.find('\\') != std::string::npos)
      return "backslashes between double quotes are not understood; use single quotes";
    return text.find('"') == std::string::npos ? "" : "a quote is not closed";
  }
  // Between single quotes, two of them stand for one.
  for (auto at = text.find('\''); at != std::string::npos; at = text.find('\'', at + 1)) {
    if (text.compare(at, 2, "''") != 0) return "a quote is not closed";
    text.erase(at, 1);
  }
  return {};
}

/// Whether the value means no value, as null does.
bool is_nothing(const std::string& value) {
  if (value == "null" || value == "Null" || value == "NULL" || value == "~") return true;
  const bool is_in_brackets = value.size() > 1 && ((value.front() == '[' && value.back() == ']') ||
                                                   (value.front() == '{' && value.back() == '}'));
  return is_in_brackets && trimmed(value.substr(1, value.size() - 2)).empty();
}

/// What an unquoted value's first character means in YAML, if it is not supported here; or nothing.
std::string unread_meaning(const std::string& value) {
  switch (value.front()) {
    case '[':
      return "a list";
    case '{':
      return "a map in braces";
    case '|':
    case '>':
      return "text of several lines";
    case '&':
    case '*':
      return "an anchor or an alias";
    case '!':
      return "a tag";
    case '%':
    case '@':
    case '`':
      return "reserved in YAML";
  }
  return {};
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
  std::string open;  // a key without a value; its map may follow
  std::istringstream stream(text);
  std::string line;
  bool has_begun = false;
  for (int number = 1; std::getline(stream, line); ++number) {
    const auto wrong = [&](const std::string& what) {
      raise(ErrorCode::kInvalidArgument, name + ", line " + std::to_string(number) + ": " + what);
    };
    line = line.substr(0, comment_in(line));
    const std::string content = trimmed(line);
    if (content == "---" && has_begun) wrong("a second document begins; there may be one");
    if (content.empty() || content == "---" || content == "...") continue;
    has_begun = true;
    const std::size_t indent = line.find_first_not_of(' ');
    if (line[indent] == '\t') wrong("a tab indents it; indent by spaces");
    if (content.starts_with("- ") || content == "-") {
      const std::string what = open.empty() ? "this" : "'" + levels.back().prefix + open + "'";
      wrong(what + " is a list, which is not understood; write one 'key: value' a line");
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
    if (const auto what = unquote(key); !what.empty()) wrong(what);
    if (value.empty()) {
      open = key;
      continue;
    }
    if (is_nothing(value)) continue;
    key = levels.back().prefix + key;
    if (const auto what = unread_meaning(value); !what.empty()) {
      wrong("'" + key + "' is " + what +
            ", which is not understood; if it is meant as text, quote it");
    }
    if (const auto what = unquote(value); !what.empty()) wrong(what);
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
