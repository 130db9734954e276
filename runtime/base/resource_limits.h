// What the system allows this process (ulimit, /dev/shm), and what kolo and UCX need at start.
// Checked before they need it, and by kolo-info --doctor. Any thread.
#pragma once

#include "runtime/base/environment.h"

#include <kolo/error.h>

#include <csignal>
#include <string>
#include <vector>

namespace kolo {

struct ResourceLimit {
  std::string what;  ///< "open files: 20, of which 6 are in use (ulimit -n)"
  bool is_enough = true;
  std::string remedy;  ///< what needs it, and how to raise the limit
};

/// All limits that kolo checks. `environment`: with UCX_TLS, UCX may do without shared memory.
std::vector<ResourceLimit> resource_limits(const Environment& environment);

/// kOutOfMemory that lists every insufficient limit with its remedy. Also raises the soft limit of
/// open files, as make_room_for_files() does.
Status check_resource_limits(const Environment& environment);

/// While it lives, this thread gets an error (EFBIG) when it extends a file beyond `ulimit -f`.
/// Without it, SIGXFSZ would end the process.
class FileSizeErrors {
 public:
  FileSizeErrors();
  ~FileSizeErrors();
  FileSizeErrors(const FileSizeErrors&) = delete;
  FileSizeErrors& operator=(const FileSizeErrors&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace kolo
