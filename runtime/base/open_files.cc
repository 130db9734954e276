#include "runtime/base/open_files.h"

#include "runtime/base/unique_handle.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace kolo {

std::size_t make_room_for_files(std::size_t wanted) {
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  if (files.rlim_cur < wanted) {
    const rlim_t before = std::exchange(files.rlim_cur, std::min<rlim_t>(files.rlim_max, wanted));
    if (::setrlimit(RLIMIT_NOFILE, &files) != 0) files.rlim_cur = before;
  }
  // The kernel's descriptor table grows by doubling, and all threads of the process wait for each
  // growth. A waiting thread may hold a lock that another thread spins on. So enlarge the table
  // now.
  const auto last = static_cast<int>(std::min<rlim_t>(files.rlim_cur, wanted)) - 1;
  const UniqueDescriptor any(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (any) static_cast<void>(UniqueDescriptor(::fcntl(any.get(), F_DUPFD_CLOEXEC, last)));
  return files.rlim_cur;
}

}  // namespace kolo
