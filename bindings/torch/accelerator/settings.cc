#include <kolo/torch/settings.h>

#include "bindings/torch/tensors/tensor_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace kolo {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_quote(char c) { return c == '\'' || c == '"'; }

/// Position of the comment (outside quotes, after a blank), or the end of the line.
std::size_t comment_in(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == '\'' && line.compare(i, 2, "''") == 0) {
        ++i;
      } else if (line[i] == quote) {
        quote = 0;
      }
    } else if (i > 0 && !is_blank(line[i - 1])) {
      continue;
    } else if (is_quote(line[i])) {
      quote = line[i];
    } else if (line[i] == '#') {
      return i;
    }
  }
  return line.size();
}

/// Removes the quotes; returns what is wrong with them, or nothing.
std::string unquote(std::string& text) {
  if (text.empty() || !is_quote(text.front())) return {};
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
  struct Meaning {
    std::string_view characters;
    const char* text;
  };
  constexpr Meaning kMeanings[] = {{"[", "a list"},
                                   {"{", "a map in braces"},
                                   {"|>", "text of several lines"},
                                   {"&*", "an anchor or an alias"},
                                   {"!", "a tag"},
                                   {"%@`", "reserved in YAML"}};
  for (const Meaning& meaning : kMeanings)
    if (meaning.characters.find(value.front()) != std::string_view::npos) return meaning.text;
  return {};
}

/// Reads settings line by line.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  /// The setting in the next line, if it has one.
  std::optional<std::pair<std::string, std::string>> take(std::string line);
  [[noreturn]] void wrong(const std::string& what) const {
    raise(ErrorCode::kInvalidArgument, name_ + ", line " + std::to_string(number_) + ": " + what);
  }

 private:
  struct Level {
    std::size_t indent = 0;
    std::string prefix;
  };

  /// Goes to the level of a line that begins behind so many blanks.
  void enter(std::size_t indent);
  std::optional<std::pair<std::string, std::string>> setting_in(const std::string& content);
  /// The text of a value, without its quotes.
  std::string value_of(const std::string& key, std::string text) const;

  const std::string& name_;
  int number_ = 0;
  bool has_begun_ = false;
  std::vector<Level> levels_{{}};
  std::string open_;  ///< a key without a value; its map may follow
};

void Reader::enter(std::size_t indent) {
  if (indent > levels_.back().indent && !open_.empty())
    levels_.push_back({indent, levels_.back().prefix + open_ + "."});
  while (indent < levels_.back().indent) levels_.pop_back();
  if (indent != levels_.back().indent) wrong("its indentation fits none above");
  open_.clear();
}

std::string Reader::value_of(const std::string& key, std::string text) const {
  if (const auto what = unread_meaning(text); !what.empty()) {
    wrong("'" + key + "' is " + what +
          ", which is not understood; if it is meant as text, quote it");
  }
  if (const auto what = unquote(text); !what.empty()) wrong(what);
  return text;
}

std::optional<std::pair<std::string, std::string>> Reader::setting_in(const std::string& content) {
  const auto colon = content.find(':');
  if (colon == std::string::npos || colon == 0 ||
      (colon + 1 < content.size() && content[colon + 1] != ' ')) {
    wrong("'" + content + "' is no 'key: value'");
  }
  std::string key = trimmed(content.substr(0, colon));
  const std::string value = trimmed(content.substr(colon + 1));
  if (const auto what = unquote(key); !what.empty()) wrong(what);
  if (value.empty()) {
    open_ = key;
    return std::nullopt;
  }
  if (is_nothing(value)) return std::nullopt;
  key = levels_.back().prefix + key;
  return std::pair(key, value_of(key, value));
}

std::optional<std::pair<std::string, std::string>> Reader::take(std::string line) {
  ++number_;
  line.resize(comment_in(line));
  const std::string content = trimmed(line);
  if (content == "---" && has_begun_) wrong("a second document begins; there may be one");
  if (content.empty() || content == "---" || content == "...") return std::nullopt;
  has_begun_ = true;
  const std::size_t indent = line.find_first_not_of(' ');
  if (line[indent] == '\t') wrong("a tab indents it; indent by spaces");
  if (content.starts_with("- ") || content == "-") {
    const std::string what = open_.empty() ? "this" : "'" + levels_.back().prefix + open_ + "'";
    wrong(what + " is a list, which is not understood; write one 'key: value' a line");
  }
  enter(indent);
  return setting_in(content);
}

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
  Reader reader(name);
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    auto setting = reader.take(line);
    if (!setting) continue;
    if (settings.has(setting->first)) reader.wrong("'" + setting->first + "' is there twice");
    settings.items_.push_back(*std::move(setting));
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
