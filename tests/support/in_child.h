// in_child(): runs a body in a process of its own, whose end is what is tested.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace kolo::test {

/// Runs `body` in a forked child and returns its exit status; −1: a signal ended it. The child
/// leaves by exit(), so that what the process has registered for its end runs there, too; it is
/// ended if it hangs.
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
