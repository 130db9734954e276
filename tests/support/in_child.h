// in_child(): runs a body in a child process, for tests of the process's end.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace kolo::test {

/// Runs `body` in a forked child and returns its exit status; −1 if a signal ended it. The child
/// leaves by exit(), so that exit handlers run there, too. A child that hangs is ended.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    try {
      std::exit(body());
    } catch (...) {
      _exit(255);
    }
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace kolo::test
