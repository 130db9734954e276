// process_end: whether another process of this pid namespace has ended. A zombie has, even if its
// parent has not waited for it. Any thread.
#pragma once

#include "runtime/base/unique_handle.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace kolo {

/// A pidfd, readable once the process has ended. None, with errno, if the process is gone (ESRCH),
/// before Linux 5.3, in some sandboxes, and where no more files can be opened.
inline UniqueDescriptor open_process(pid_t pid) {
  return UniqueDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// Where there are no pidfds, a zombie counts as alive.
inline bool has_ended(pid_t pid) {
  const UniqueDescriptor process = open_process(pid);
  if (!process) return ::kill(pid, 0) != 0 && errno == ESRCH;
  pollfd poll = {.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) == 1;
}

}  // namespace kolo
