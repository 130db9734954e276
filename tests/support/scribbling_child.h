// A forked child that writes to memory of its parent while the parent goes on: what the child
// writes must stay in the child. For random programs. Any thread.
#pragma once

#include "tests/support/wrong.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kolo::test {

class ScribblingChild {
 public:
  using Memory = std::vector<std::span<std::byte>>;

  /// Forks, if there is any memory.
  explicit ScribblingChild(const Memory& memory) : pid_(memory.empty() ? 0 : ::fork()) {
    if (pid_ != 0 || memory.empty()) return;
    // The parent's other threads are not there, nor are the locks that they hold free.
    for (int round = 0; round < 3; ++round) {
      const auto byte = static_cast<std::byte>(0xFF - round);
      for (const auto& part : memory) std::fill(part.begin(), part.end(), byte);
      for (const auto& part : memory)
        if (std::find_if(part.begin(), part.end(), [&](std::byte b) { return b != byte; }) !=
            part.end())
          ::_exit(1);
    }
    ::_exit(0);
  }
  ScribblingChild(const ScribblingChild&) = delete;
  ScribblingChild& operator=(const ScribblingChild&) = delete;
  ~ScribblingChild() {
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  /// Waits for the child. Throws Wrong unless it found there what it had written.
  void end() {
    int status = 0;
    if (pid_ != 0 && (::waitpid(pid_, &status, 0) != pid_ || status != 0))
      throw Wrong("a forked child ended with status " + std::to_string(status));
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

}  // namespace kolo::test
