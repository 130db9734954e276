#include "runtime/base/proc_access.h"

#include <sys/prctl.h>
#include <sys/stat.h>

namespace kolo {
namespace {

// The kernel's number of the first user namespace (PROC_USER_INIT_INO).
constexpr ino_t kHostsUserNamespace = 0xEFFFFFFDU;

}  // namespace

std::string_view why_peers_cannot_open() {
  if (::prctl(PR_GET_DUMPABLE) != 1)
    return "this user may not read the program's file (as with mode 0711), so that the kernel "
           "closes /proc/<pid> to others";
  struct stat status = {};
  if (::stat("/proc/self/ns/user", &status) == 0 && status.st_ino != kHostsUserNamespace)
    return "this process is in a user namespace that is not the host's, as Apptainer and other "
           "containers without root have one each";
  return {};
}

}  // namespace kolo
