// The file of a checkpoint: an archive of LibTorch, closed by a ZIP comment that tells whether it
// is whole. Private to bindings/torch; called on rank 0's training thread. Errors:
// std::runtime_error with one line that names the file, for checkpoint.cc to hand to all ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace kolo {

/// Writes `bytes` beside `path`, syncs, and renames it to `path`; makes missing folders. Once it is
/// there this does not fail: a folder that cannot be opened or synced is left, or warned of.
void write_whole_file(const std::filesystem::path& path, std::string_view bytes);

/// Writes `archive` and its comment in this way.
void write_checkpoint_file(const std::filesystem::path& path, std::string archive);

/// The bytes of a whole and undamaged checkpoint.
std::string read_checkpoint_file(const std::filesystem::path& path);

/// When the file was saved, in nanoseconds since 1970; nullopt unless it is a checkpoint of its
/// full length. Reads the comment only.
std::optional<std::int64_t> checkpoint_time(const std::filesystem::path& path);

/// Ends the names of files that are being written.
inline constexpr const char* kPartialEnding = ".partial";

}  // namespace kolo
