// Folds lines of text at 80 columns. Used by kolo-info's printing; any thread.
#pragma once

#include <string>
#include <string_view>

namespace kolo::info {

/// The line with a break in place of the blank before each word that ends beyond column 80. Each
/// new line starts with `indent`. A word that is longer than a line stays whole.
std::string folded(std::string_view line, std::string_view indent);

/// Prints "label    text", folded.
void print_row(std::string_view label, std::string_view text);

}  // namespace kolo::info
