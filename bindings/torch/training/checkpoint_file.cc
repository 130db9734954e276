#include "bindings/torch/training/checkpoint_file.h"

#include "bindings/core/output_file.h"

#include <kolo/kolo.h>

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace kolo {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw std::runtime_error("checkpoint " + path.string() + ": " + what);
}

[[noreturn]] void fail_by_errno(const fs::path& path, const char* what) {
  fail(path, fmt::format("{} ({})", what, std::generic_category().message(errno)));
}

/// The file that is read or written, with symlinks resolved.
fs::path file_of(const fs::path& path) {
  try {
    return file_to_replace(path);
  } catch (const Exception& error) {
    fail(path, std::string(error.what()) + "; name a file");
  }
}

/// Detects every change of one 8-byte word: each step is a bijection of both the sum and the word.
std::uint64_t checksum_of(std::string_view bytes) {
  constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15;
  std::uint64_t sum = bytes.size();
  for (std::size_t i = 0; i < bytes.size(); i += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    sum = (sum ^ word) * kPrime;
    sum ^= sum >> 29;
  }
  return sum;
}

/// The ZIP comment. Its length is fixed so that it can be found from the file's end.
struct Trailer {
  std::uint64_t length = 0;  ///< length of the archive before it
  std::uint64_t checksum = 0;
  std::int64_t time = 0;

  static constexpr std::size_t kSize = 98;

  std::string text() const {
    return fmt::format("kolo checkpoint 1 length={:020} checksum={:016x} saved={:020}", length,
                       checksum, time);
  }

  static std::optional<Trailer> parse(const std::string& text) {
    Trailer trailer;
    const int fields = std::sscanf(text.c_str(),
                                   "kolo checkpoint 1 length=%20" SCNu64 " checksum=%16" SCNx64
                                   " saved=%20" SCNd64,
                                   &trailer.length, &trailer.checksum, &trailer.time);
    return fields == 3 && trailer.text() == text ? std::optional(trailer) : std::nullopt;
  }
};

/// Declares a comment of `size` bytes in the end record of a ZIP archive that has none.
void declare_comment(const fs::path& path, std::string& archive, std::size_t size) {
  constexpr std::size_t kRecord = 22;
  if (archive.size() < kRecord || archive.compare(archive.size() - kRecord, 4, "PK\5\6") != 0 ||
      archive.compare(archive.size() - 2, 2, std::string(2, '\0')) != 0) {
    fail(path, "LibTorch did not write a ZIP archive without a comment, as this kolo expects");
  }
  archive[archive.size() - 2] = static_cast<char>(size);
  archive[archive.size() - 1] = static_cast<char>(size >> 8);
}

std::optional<Trailer> read_trailer(std::ifstream& in, std::uint64_t file_size) {
  if (file_size < Trailer::kSize) return std::nullopt;
  std::string text(Trailer::kSize, '\0');
  in.seekg(static_cast<std::streamoff>(file_size - Trailer::kSize));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return in ? Trailer::parse(text) : std::nullopt;
}

/// Lets the name of a file that is in its place survive a crash.
void sync_folder(const fs::path& path, const fs::path& folder) {
  // Nothing fails here: the user may not be allowed to open the folder, and some file systems
  // cannot sync it.
  const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  const int reason = ::fsync(directory) == 0 ? 0 : errno;
  ::close(directory);
  if (reason == 0 || reason == EINVAL || reason == EBADF || reason == ENOTSUP) return;
  TORCH_WARN_ONCE("kolo: checkpoint ", path.string(), ": its folder could not be synced (",
                  std::generic_category().message(reason),
                  "); if this host crashes now, the file that it has replaced may be back: look at "
                  "its disk");
}

}  // namespace

void write_checkpoint_file(const fs::path& path, std::string archive) {
  declare_comment(path, archive, Trailer::kSize);
  Trailer trailer;
  trailer.length = archive.size();
  trailer.checksum = checksum_of(archive);
  trailer.time = std::chrono::duration_cast<std::chrono::nanoseconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  archive += trailer.text();
  write_whole_file(path, archive);
}

void write_whole_file(const fs::path& path, std::string_view bytes) {
  const fs::path target = file_of(path);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(path, "its folder cannot be made (" + error.message() + ")");
  const fs::path partial = target.string() + kPartialEnding;
  try {
    write_file(partial, bytes);
  } catch (const Exception& failure) {
    fail(path, failure.what());
  }
  if (::rename(partial.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    ::unlink(partial.c_str());
    errno = reason;
    fail_by_errno(path, "could not be put in its place");
  }
  sync_folder(path, folder);
}

std::string read_checkpoint_file(const fs::path& path) {
  std::error_code error;
  file_of(path);  // opening a pipe would block
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_by_errno(path, "cannot be opened");
  const std::uint64_t size = fs::file_size(path, error);
  if (error) fail(path, "cannot be read (" + error.message() + ")");
  const std::optional<Trailer> trailer = read_trailer(in, size);
  if (!trailer) {
    fail(path, fmt::format("is torn or was not saved by kolo: its {} bytes do not end as a "
                           "checkpoint does; use an older one. What torch::save() wrote, "
                           "torch::load() reads, on the root, before broadcast_parameters()",
                           size));
  }
  if (trailer->length != size - Trailer::kSize) {
    fail(path, fmt::format("is torn: it has {} bytes of the {} that were saved; use an older one",
                           size - Trailer::kSize, trailer->length));
  }
  std::string bytes(trailer->length, '\0');
  in.seekg(0);
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in) fail_by_errno(path, "cannot be read to its end");
  if (const std::uint64_t found = checksum_of(bytes); found != trailer->checksum) {
    fail(path, fmt::format("is damaged: its checksum is {:016x}, but {:016x} was saved; use an "
                           "older one",
                           found, trailer->checksum));
  }
  return bytes + trailer->text();
}

std::optional<std::int64_t> checkpoint_time(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || path.extension() == kPartialEnding) return std::nullopt;
  const std::uint64_t size = fs::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) return std::nullopt;
  const std::optional<Trailer> trailer = read_trailer(in, size);
  if (!trailer || trailer->length != size - Trailer::kSize) return std::nullopt;
  return trailer->time;
}

}  // namespace kolo
