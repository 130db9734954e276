// Files that kolo writes: opened and replaced so that nothing but a file is ever emptied, waited
// for or put aside, and so that symlinks lead to the file that they name. Any thread.
#pragma once

#include "runtime/base/unique_handle.h"

#include <kolo/error.h>

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace kolo {

bool is_null_device(const struct stat& what);

/// "a pipe", "a folder": what cannot be replaced by a file's contents. Empty for a file.
std::string_view kind_of_no_file(const struct stat& what);

/// The file that `path` names once symlinks are followed; it need not exist yet. kInvalidArgument,
/// "'path' is a pipe", for what is no file (/dev/null included) and for symlinks in a circle.
Result<std::filesystem::path> file_at(const std::filesystem::path& path);

/// Opens `path` for writing and creates it (mode 0644) where nothing is there; what a file has
/// stays. Never waits for the reader of a pipe. kInvalidArgument, "'path' is a pipe" or "cannot
/// create 'path': …", for what is neither a file nor /dev/null and for what cannot be opened.
Result<UniqueDescriptor> open_output(const std::string& path);

/// Makes the file `path` anew, in place of what has that name, and returns once `bytes` are on the
/// disk; else nothing is left. kOutOfMemory: "could not be written to its end (…)" and the like.
Status write_new_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace kolo
