// The format of a line, the levels, and the descriptors that logging and waking own.
#include "runtime/base/log.h"
#include "runtime/base/waker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>
#include <vector>

namespace kolo {
namespace {

TEST(Log, LinesSayWhoSpeaksAndHowBadItIs) {
  testing::internal::CaptureStderr();
  Log log("info");
  log.warning("before {}", 1);
  log.set_rank(2);
  log.info("hello {}", "there");
  log.error("{{}} is {} not formatted again", "{x}");
  log.debug("unseen");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[kolo] warning: before 1\n"
            "[kolo 2] info: hello there\n"
            "[kolo 2] error: {} is {x} not formatted again\n");
}

TEST(Log, EveryLevelIsANameOfTheKnob) {
  const std::vector<std::string> names = {"trace", "debug", "info", "warning", "error", "off"};
  for (std::size_t set = 0; set < names.size(); ++set) {
    const Log log(names[set]);
    for (std::size_t level = 0; level + 1 < names.size(); ++level) {
      EXPECT_EQ(log.enabled(static_cast<LogLevel>(level)), level >= set) << names[set] << level;
    }
  }
}

TEST(Log, RanksOfOneProcessKeepTheirNames) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([rank] {
      Log log("warning");
      log.set_rank(rank);
      for (int i = 0; i < 20; ++i) log.warning("I am {}.", rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = testing::internal::GetCapturedStderr();
  for (int rank = 0; rank < 4; ++rank) {
    const std::string line = fmt::format("[kolo {}] warning: I am {}.\n", rank, rank);
    int found = 0;
    for (auto at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++found;
    EXPECT_EQ(found, 20) << line;
  }
}

bool readable(int fd, int timeout_ms) {
  pollfd polled{fd, POLLIN, 0};
  return ::poll(&polled, 1, timeout_ms) == 1;
}

TEST(Waker, EndsAPollOfAnotherThreadUntilItIsCleared) {
  const Waker waker;
  EXPECT_FALSE(readable(waker.fd(), 0));
  std::thread other([&] {
    waker.wake();
    waker.wake();
  });
  EXPECT_TRUE(readable(waker.fd(), 10'000));
  other.join();
  waker.clear();
  EXPECT_FALSE(readable(waker.fd(), 0));
  waker.clear();  // does not block
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(UniqueDescriptor, ClosesWhatItOwnsOnce) {
  const int first = ::open("/dev/null", O_RDONLY);
  const int second = ::open("/dev/null", O_RDONLY);
  {
    UniqueDescriptor a(first);
    UniqueDescriptor b(std::move(a));
    EXPECT_FALSE(a);
    EXPECT_EQ(b.get(), first);
    b = UniqueDescriptor(second);
    EXPECT_FALSE(is_open(first));
    EXPECT_TRUE(is_open(second));
  }
  EXPECT_FALSE(is_open(second));
  UniqueDescriptor none;
  EXPECT_EQ(none.release(), -1);
}

}  // namespace
}  // namespace kolo
