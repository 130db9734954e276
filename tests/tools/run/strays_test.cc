// kolo-run's search for processes of a host, which start and end meanwhile.
#include "tools/run/strays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kolo::run {
namespace {

/// A process that runs `body` until it is destroyed.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    ::_exit(1);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(Strays, AreThoseBelowWithTheVariable) {
  int started[2];
  int waits[2];
  ASSERT_EQ(::pipe(started), 0);
  ASSERT_EQ(::pipe(waits), 0);
  const Child sleeper([&] {
    ::dup2(started[1], STDOUT_FILENO);
    ::dup2(waits[0], STDIN_FILENO);
    ::execlp("env", "env", "KOLO_STRAY=1", "sh", "-c", "echo; read -r line", nullptr);
  });
  char line = 0;
  ASSERT_EQ(::read(started[0], &line, 1), 1);
  EXPECT_THAT(strays_with("KOLO_STRAY=1"), testing::Contains(sleeper.pid()));
  EXPECT_THAT(strays_with("KOLO_STRAY="), testing::IsEmpty());
  for (const int end : {started[0], started[1], waits[0], waits[1]}) ::close(end);
}

// Each search opens some files of processes that have ended when it reads them.
TEST(Strays, ProcessesMayEndWhileTheyAreLookedAt) {
  const auto come_and_go = [] {
    for (;;) {
      if (::fork() == 0) ::_exit(0);
      ::wait(nullptr);
    }
  };
  const Child all[] = {Child(come_and_go), Child(come_and_go), Child(come_and_go),
                       Child(come_and_go)};
  for (int look = 0; look < 2000; ++look) ASSERT_TRUE(strays_with("KOLO_STRAY=2").empty());
}

}  // namespace
}  // namespace kolo::run
