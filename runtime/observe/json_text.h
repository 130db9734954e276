// Text as a JSON string. Pure; the timeline's writer thread calls it.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace kolo {

/// Appends `text` in quotes, escaped. Bytes that are not UTF-8 become U+FFFD each, so that what is
/// written is always valid JSON.
void append_json_text(fmt::memory_buffer& out, std::string_view text);

}  // namespace kolo
