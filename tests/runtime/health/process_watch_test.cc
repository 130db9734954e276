// ProcessWatch on real processes.
#include "runtime/health/process_watch.h"

#include "runtime/base/process_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <numeric>
#include <utility>
#include <vector>

namespace kolo::process_watch_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A process that does nothing until it is killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    for (;;) ::pause();
  }
  ~Child() { end(); }
  pid_t pid() const { return pid_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  /// Also takes it out of the process table.
  void end() {
    if (pid_ <= 0) return;
    kill();
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

 private:
  pid_t pid_;
};

World world_with(std::vector<int> pids, const std::string& pid_namespace) {
  std::vector<RankInfo> ranks = {describe_this_process("")};
  for (const int pid : pids) ranks.push_back({"other", "other", pid, pid_namespace, {}});
  return World(0, std::move(ranks));
}

std::string here() { return describe_this_process("").pid_namespace; }

bool is_readable(const ProcessWatch& watch, int milliseconds) {
  pollfd polled = {watch.descriptor(), POLLIN, 0};
  return ::poll(&polled, 1, milliseconds) > 0;
}

bool wait_readable(const ProcessWatch& watch) { return is_readable(watch, 20'000); }

class ProcessWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    const UniqueDescriptor self = open_process(::getpid());
    if (!self && (errno == ENOSYS || errno == EPERM)) {
      GTEST_SKIP() << "this kernel or sandbox has no pidfd_open, so there is nothing to watch with";
    }
  }
  const Log log_{"warning"};
};

TEST_F(ProcessWatchTest, TellsWhichProcessHasEnded) {
  Child first;
  const Child second;
  ProcessWatch watch(world_with({first.pid(), second.pid()}, here()), log_);
  EXPECT_FALSE(is_readable(watch, 0));
  EXPECT_THAT(watch.exited(), IsEmpty());
  first.kill();  // a zombie counts as ended
  ASSERT_TRUE(wait_readable(watch));
  EXPECT_THAT(watch.exited(), ElementsAre(1));
  EXPECT_THAT(watch.exited(), IsEmpty());
  EXPECT_FALSE(is_readable(watch, 0));
  second.kill();
  ASSERT_TRUE(wait_readable(watch));
  EXPECT_THAT(watch.exited(), ElementsAre(2));
  EXPECT_LT(watch.descriptor(), 0);
}

TEST_F(ProcessWatchTest, TellsOfAllThatHaveEndedAtOnce) {
  std::vector<Child> children(100);
  std::vector<int> pids;
  for (const Child& child : children) pids.push_back(child.pid());
  ProcessWatch watch(world_with(pids, here()), log_);
  for (Child& child : children) child.end();
  std::vector<int> ranks(children.size());
  std::iota(ranks.begin(), ranks.end(), 1);
  EXPECT_THAT(watch.exited(), testing::UnorderedElementsAreArray(ranks));
  EXPECT_LT(watch.descriptor(), 0);
}

// A forked child also holds this process's open descriptors.
TEST_F(ProcessWatchTest, WhatAForkedChildHasOpenIsToldOnce) {
  Child first;
  const Child second;
  ProcessWatch watch(world_with({first.pid(), second.pid()}, here()), log_);
  const Child forked;
  first.kill();
  ASSERT_TRUE(wait_readable(watch));
  EXPECT_THAT(watch.exited(), ElementsAre(1));
  EXPECT_FALSE(is_readable(watch, 0));
  EXPECT_THAT(watch.exited(), IsEmpty());
}

TEST_F(ProcessWatchTest, AProcessThatWasGoneBeforeIsToldToo) {
  Child child;
  const int pid = child.pid();
  child.end();
  ProcessWatch watch(world_with({pid}, here()), log_);
  ASSERT_TRUE(wait_readable(watch));
  EXPECT_THAT(watch.exited(), ElementsAre(1));
}

TEST_F(ProcessWatchTest, LeavesItselfAndForeignNamespacesAlone) {
  const Child child;
  ProcessWatch ranks_of_this_process(world_with({::getpid()}, here()), log_);
  EXPECT_LT(ranks_of_this_process.descriptor(), 0);
  ProcessWatch elsewhere(world_with({child.pid()}, "another"), log_);
  EXPECT_LT(elsewhere.descriptor(), 0);
  EXPECT_THAT(elsewhere.exited(), IsEmpty());
}

TEST_F(ProcessWatchTest, WithoutAUsablePidItSaysSoAtDebugLevel) {
  testing::internal::CaptureStderr();
  const Log log("debug");
  ProcessWatch watch(world_with({-1}, here()), log);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("debug: cannot watch the process of rank 1 (pid -1)"));
  EXPECT_THAT(watch.exited(), IsEmpty());
}

}  // namespace
}  // namespace kolo::process_watch_test
