// Lines for people, of at most 80 columns. Used by what kolo-info prints; any thread.
#pragma once

#include <string>
#include <string_view>

namespace kolo::info {

/// The line with a break in place of the blank before each word that ends beyond column 80; what
/// comes after a break stands behind `indent`. A word that is longer than that stays whole.
std::string folded(std::string_view line, std::string_view indent);

/// Prints "label    text", folded.
void print_row(std::string_view label, std::string_view text);

}  // namespace kolo::info
