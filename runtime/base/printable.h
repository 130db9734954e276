// Makes text from users, such as tensor names and reasons, fit for a terminal and a log. Called
// once for each message, where the message leaves kolo. Pure function.
#pragma once

#include <string>
#include <string_view>

namespace kolo {

/// `text` on one line, with control codes as "\x1b". In a text above 4,096 bytes, the length of the
/// middle part replaces that part.
std::string printable(std::string_view text);

}  // namespace kolo
