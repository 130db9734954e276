// Random bytes in a sandbox that refuses the system call for them.
#include "runtime/bootstrap/secret.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>

namespace kolo::secret_test {
namespace {

constexpr int kPassed = 0;
constexpr int kFailed = 1;
constexpr int kNoSandbox = 2;

bool refuse_getrandom(unsigned error) {
  std::array<sock_filter, 4> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program = {filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Checks `passes` in a process of its own, whose getrandom() fails with `error`.
void expect_in_sandbox(unsigned error, const std::function<bool()>& passes) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(10);  // a process that spins is killed
    if (!refuse_getrandom(error)) ::_exit(kNoSandbox);
    ::_exit(passes() ? kPassed : kFailed);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSandbox) GTEST_SKIP() << "no seccomp";
  EXPECT_EQ(status, kPassed) << "errno " << error;
}

TEST(RandomBytes, ComeFromTheDeviceWhereTheCallIsRefused) {
  for (const unsigned error : {EPERM, ENOSYS}) {
    expect_in_sandbox(error, [] {
      const auto one = random_bytes(64);
      const auto other = random_bytes(64);
      return one.ok() && other.ok() && one->size() == 64 && *one != *other;
    });
  }
}

TEST(RandomBytes, AreAnErrorWhereThereAreNone) {
  expect_in_sandbox(EPERM, [] {
    const rlimit none = {0, 0};  // so that no device can be opened
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto bytes = random_bytes(16);
    return !bytes.ok() && bytes.error().message.find("seccomp") != std::string::npos;
  });
}

}  // namespace
}  // namespace kolo::secret_test
