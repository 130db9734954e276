// Converts lists that ranks compare to and from one text. Private to bindings/torch; pure.
#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kolo {

/// Joins lines, which contain no line end; the text has one line end after each.
template <class Lines>
std::string join_lines(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

inline std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

}  // namespace kolo
