#include "runtime/bootstrap/secret_file.h"

#include "runtime/base/check.h"
#include "runtime/base/system_error.h"
#include "runtime/base/unique_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace kolo {
namespace {

constexpr std::size_t kLongestSecret = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

/// Opens a regular file that only its owner can read.
Result<UniqueDescriptor> open_private(const std::string& path) {
  // O_NONBLOCK: do not wait for a writer if this is a pipe.
  UniqueDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    return KOLO_ERROR(kInvalidArgument,
                      "cannot read the secret in {}: {}; make the file on each host that starts "
                      "ranks (KOLO_SECRET_FILE, --secret-file)",
                      path, reason(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return KOLO_ERROR(kInvalidArgument, "the secret {} is no regular file", path);
  }
  if ((status.st_mode & kOthers) != 0) {
    return KOLO_ERROR(
        kInvalidArgument,
        "others may read or change the secret in {}, which has mode {:o}: chmod 600 it", path,
        status.st_mode & 07777);
  }
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return KOLO_ERROR(
        kInvalidArgument,
        "the secret in {} belongs to user {}, and this process to user {}: take a file "
        "of one's own",
        path, status.st_uid, ::geteuid());
  }
  return fd;
}

}  // namespace

Result<std::string> read_secret_file(const std::string& path) {
  KOLO_ASSIGN(const UniqueDescriptor fd, open_private(path));
  std::string secret(kLongestSecret + 1, '\0');
  const auto count = ::read(fd.get(), secret.data(), secret.size());
  if (count < 0) {
    return KOLO_ERROR(kInvalidArgument, "cannot read the secret in {}: {}", path, reason(errno));
  }
  secret.resize(static_cast<std::size_t>(count));
  if (secret.size() > kLongestSecret) {
    return KOLO_ERROR(kInvalidArgument, "the secret in {} is longer than {} bytes", path,
                      kLongestSecret);
  }
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.empty() || secret.find('\0') != std::string::npos) {
    return KOLO_ERROR(kInvalidArgument,
                      "the secret in {} is {}: write a line of text, as `openssl rand -hex 16` "
                      "makes it",
                      path, secret.empty() ? "empty" : "no text");
  }
  return secret;
}

Result<std::string> secret_or_file(const std::string& secret, const std::string& path) {
  if (!secret.empty() || path.empty()) return secret;
  return read_secret_file(path);
}

}  // namespace kolo
