// What the system lets this process have (ulimit, /dev/shm), and what kolo and UCX need of it to
// start: asked before they need it, and by kolo-info --doctor. Any thread.
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
  std::string remedy;  ///< what it is needed for, and how to have more
};

/// All that are looked at. `environment`: UCX_TLS may do without shared memory.
std::vector<ResourceLimit> resource_limits(const Environment& environment);

/// kOutOfMemory that lists those that are not enough, with their remedies. Raises the soft limit of
/// open files, as make_room_for_files() does.
Status check_resource_limits(const Environment& environment);

/// While it lives, a file that this thread makes longer than `ulimit -f` is an error (EFBIG), where
/// SIGXFSZ would end the process.
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
