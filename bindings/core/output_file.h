// Files that a binding writes: runtime/base/output_file.h for the bindings, with its errors thrown.
// Any thread.
#pragma once

#include <kolo/export.h>

#include <filesystem>
#include <string_view>

namespace kolo {

/// file_at(): what a rename to `path` may replace.
KOLO_API std::filesystem::path file_to_replace(const std::filesystem::path& path);

/// write_new_file().
KOLO_API void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace kolo
