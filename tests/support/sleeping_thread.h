// Whether a thread of this process sleeps, for tests that interrupt it where it waits.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace kolo::test {

/// Whether this thread of this process is blocked in the kernel.
inline bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'S';
}

}  // namespace kolo::test
