// See ucx_leftovers.h.
#include "transport/ucx/ucx_leftovers.h"

#include "runtime/base/unique_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace kolo {
namespace {

constexpr std::string_view kPrefix = "ucx_shm_posix_";

/// Whether nobody uses the file: only then does the kernel grant a lease for writing.
bool is_left(const std::string& path) {
  // If this fails because another process holds the lease now, that process removes the file.
  const UniqueDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0) return false;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return false;
  // The kernel signals when somebody opens the file meanwhile. SIGIO would end the process.
  return ::fcntl(file.get(), F_SETSIG, SIGURG) == 0 &&
         ::fcntl(file.get(), F_SETLEASE, F_WRLCK) == 0;
}

}  // namespace

void remove_ucx_leftovers(const std::string& folder) {
  std::error_code unknown;
  std::filesystem::directory_iterator entry(folder, unknown);
  for (const std::filesystem::directory_iterator end; !unknown && entry != end;
       entry.increment(unknown)) {
    const std::string path = entry->path();
    if (entry->path().filename().string().starts_with(kPrefix) && is_left(path))
      ::unlink(path.c_str());
  }
}

}  // namespace kolo
