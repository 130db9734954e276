// Files that a binding writes: wraps runtime/base/output_file.h and throws its errors. Any thread.
#pragma once

#include <kolo/export.h>

#include <filesystem>
#include <string_view>

namespace kolo {

/// file_at(): the file that a rename to `path` may replace.
KOLO_API std::filesystem::path file_to_replace(const std::filesystem::path& path);

/// write_new_file().
KOLO_API void write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace kolo
