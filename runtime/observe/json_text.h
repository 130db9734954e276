// Writes text as a JSON string. Pure; called by the timeline's writer thread.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace kolo {

/// Appends `text` in quotes, escaped. Each byte that is not UTF-8 becomes U+FFFD, so that the
/// result is always valid JSON.
void append_json_text(fmt::memory_buffer& out, std::string_view text);

}  // namespace kolo
