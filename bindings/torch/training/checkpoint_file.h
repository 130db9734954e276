// A checkpoint's file: a LibTorch archive followed by a ZIP comment that tells whether the file is
// whole. Private to bindings/torch; rank 0's training thread. Errors are std::runtime_error with
// one line that names the file; checkpoint.cc passes them to all ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kolo {

/// Writes `bytes` beside `path`, syncs, and renames the result to `path`. Makes missing folders.
/// After the rename it does not fail: if the folder cannot be opened or synced, it warns at most.
void write_whole_file(const std::filesystem::path& path, std::string_view bytes);

/// Writes `archive` and its comment with write_whole_file().
void write_checkpoint_file(const std::filesystem::path& path, std::string archive);

/// Returns the bytes of a whole and undamaged checkpoint.
std::string read_checkpoint_file(const std::filesystem::path& path);

/// The time of saving, in nanoseconds since 1970; nullopt unless the file is a checkpoint of its
/// full length. Reads only the comment.
std::optional<std::int64_t> checkpoint_time(const std::filesystem::path& path);

/// Suffix of files that are being written.
inline constexpr const char* kPartialEnding = ".partial";

}  // namespace kolo
