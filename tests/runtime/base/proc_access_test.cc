// Which processes may open a process's files through /proc, depending on what a child does to
// itself.
#include "runtime/base/proc_access.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string_view>

namespace kolo {
namespace {

constexpr int kCannot = 77;

/// 0 if a child that makes `change` is refused with `word`; kCannot if the change is not allowed
/// here.
int access_after(const std::function<int()>& change, std::string_view word) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (change() != 0) ::_exit(kCannot);
    ::_exit(why_peers_cannot_open().find(word) != std::string_view::npos ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ProcAccess, NeedsAProgramThatMayBeRead) {
  EXPECT_EQ(access_after([] { return ::prctl(PR_SET_DUMPABLE, 0); }, "mode 0711"), 0);
}

TEST(ProcAccess, NeedsTheHostsUserNamespace) {
  if (!why_peers_cannot_open().empty()) GTEST_SKIP() << why_peers_cannot_open();
  const int refused = access_after([] { return ::unshare(CLONE_NEWUSER); }, "user namespace");
  if (refused == kCannot) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(refused, 0);
}

}  // namespace
}  // namespace kolo
