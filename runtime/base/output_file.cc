#include "runtime/base/output_file.h"

#include "runtime/base/check.h"
#include "runtime/base/resource_limits.h"
#include "runtime/base/system_error.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace kolo {
namespace {

Error no_file(const std::string& path, std::string_view kind) {
  return KOLO_ERROR(kInvalidArgument, "'{}' is {}", path, kind);
}

}  // namespace

bool is_null_device(const struct stat& what) {
  return S_ISCHR(what.st_mode) && what.st_rdev == makedev(1, 3);
}

std::string_view kind_of_no_file(const struct stat& what) {
  if (S_ISDIR(what.st_mode)) return "a folder";
  if (S_ISFIFO(what.st_mode)) return "a pipe";
  if (S_ISSOCK(what.st_mode)) return "a socket";
  if (S_ISCHR(what.st_mode)) return "a terminal or another character device";
  if (S_ISBLK(what.st_mode)) return "a block device";
  return {};
}

Result<std::filesystem::path> file_at(const std::filesystem::path& path) {
  struct stat what = {};
  if (::stat(path.c_str(), &what) == 0) {
    const std::string_view kind = kind_of_no_file(what);
    if (!kind.empty()) return no_file(path.string(), kind);
  } else if (errno == ELOOP) {
    return no_file(path.string(), "a symlink that leads back to itself");
  } else if (!path.has_filename()) {
    return no_file(path.string(), "no name of a file");
  }
  std::filesystem::path file = path;
  std::error_code error;
  for (auto target = std::filesystem::read_symlink(file, error); !error;
       target = std::filesystem::read_symlink(file, error)) {
    file = file.parent_path() / target;
  }
  return file;
}

Result<UniqueDescriptor> open_output(const std::string& path) {
  // open() does not truncate, because the path may turn out not to be a regular file.
  UniqueDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644));
  const int error = file ? 0 : errno;
  struct stat what = {};
  // stat() also sees what open() refuses, such as a socket or a pipe without a reader.
  const bool exists = (file ? ::fstat(file.get(), &what) : ::stat(path.c_str(), &what)) == 0;
  const std::string_view kind = exists ? kind_of_no_file(what) : std::string_view();
  if (!kind.empty() && !is_null_device(what)) return no_file(path, kind);
  if (!file) return KOLO_ERROR(kInvalidArgument, "cannot create '{}': {}", path, reason(error));
  return file;
}

Status write_new_file(const std::filesystem::path& path, std::string_view bytes) {
  const FileSizeErrors file_size_errors;
  ::unlink(path.c_str());  // left by a process that was killed during this function
  const UniqueDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) return KOLO_ERROR(kOutOfMemory, "cannot be written ({})", reason(errno));
  const auto failed = [&](std::string_view what) {
    const int error = errno;
    ::unlink(path.c_str());
    return KOLO_ERROR(kOutOfMemory, "{} ({}{})", what, reason(error),
                      error == EFBIG ? ": see ulimit -f" : "");
  };
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return failed("could not be written to its end");
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(file.get()) != 0) return failed("did not reach the disk");
  return {};
}

}  // namespace kolo
