// What users name and say, such as tensors and reasons, fit for a terminal and a log: asked by what
// hands messages out, once each. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kolo {

/// `text` in one line: control codes as "\x1b", and of more than 4,096 bytes the middle left out,
/// with its length in place of it.
std::string printable(std::string_view text);

}  // namespace kolo
