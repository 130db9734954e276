// Opens and replaces the files that kolo writes. Only regular files are ever truncated, waited for
// or moved, and symlinks lead to the file that they name. Any thread.
#pragma once

#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace kolo {

bool is_null_device(const struct stat& what);

/// What is at a path instead of a regular file: "a pipe", "a folder". Empty for a regular file.
std::string_view kind_of_no_file(const struct stat& what);

/// The file that `path` names after all symlinks; it need not exist yet. kInvalidArgument ("'path'
/// is a pipe") for anything but a regular file (also for /dev/null) and for circular symlinks.
Result<std::filesystem::path> file_at(const std::filesystem::path& path);

/// Opens `path` for writing without truncation, and creates it (mode 0644) if it does not exist.
/// Never waits for the reader of a pipe. kInvalidArgument, "'path' is a pipe" or "cannot create
/// 'path': …", for anything but a regular file or /dev/null and for a path that cannot be opened.
Result<UniqueDescriptor> open_output(const std::string& path);

/// Creates the file `path`, in place of any file of that name, and returns once `bytes` are on
/// disk. On failure no file is left: kOutOfMemory, "could not be written to its end (…)" and
/// similar.
Status write_new_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace kolo
