// exit() while kolo is at work: in a signal handler, in a callback, in another thread. The process
// must end with its status, whatever the thread holds.
// Runs in a process that has not called init() yet; its children have not either.
#include "tests/support/in_child.h"
#include "tests/support/sleeping_thread.h"

#include <kolo/kolo.h>

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace {

using kolo::test::in_child;
using kolo::test::sleeps;

constexpr int kStatus = 7;

/// Waits for a message that nobody sends.
void wait_in_kolo() {
  float value = 0;
  kolo::recv(&value, 1, kolo::DataType::kFloat32, 0);
}

/// Runs `then` on a thread of its own, once the calling thread sleeps.
void when_this_thread_sleeps(std::function<void()> then) {
  std::thread([thread = gettid(), then = std::move(then)] {
    while (!sleeps(thread)) std::this_thread::yield();
    then();
  }).detach();
}

/// Sends the calling thread SIGUSR1 with this `handler` while the thread waits.
void interrupt_the_wait(void (*handler)(int)) {
  std::signal(SIGUSR1, handler);
  when_this_thread_sleeps([thread = pthread_self()] { pthread_kill(thread, SIGUSR1); });
  wait_in_kolo();
}

/// Makes `call` where init() waits.
class CallingStore final : public kolo::KeyValueStore {
 public:
  explicit CallingStore(std::function<void()> call) : call_(std::move(call)) {}
  void set(const std::string&, const std::string&) override {}
  std::string get(const std::string&, std::chrono::milliseconds) override {
    call_();
    throw std::runtime_error("nobody is there");
  }

 private:
  const std::function<void()> call_;
};

void init_with(std::function<void()> call) {
  const auto store = std::make_shared<CallingStore>(std::move(call));
  kolo::init({.rank = 0, .size = 2, .store = store});
}

void start_and_end_once() {
  kolo::init();
  kolo::shutdown();
}

TEST(ApiExit, InAHandlerThatInterruptsAWait) {
  const auto body = [] {
    kolo::init();
    interrupt_the_wait([](int) { std::exit(kStatus); });
    return 1;
  };
  EXPECT_EQ(in_child(body), kStatus);
}

TEST(ApiExit, AHandlerMayCallShutdownWhichLeavesTheRestToTheEnd) {
  const auto body = [] {
    kolo::init();
    interrupt_the_wait([](int) {
      kolo::abort("a signal");
      kolo::shutdown();
      std::exit(kolo::is_initialized() ? kStatus : 1);
    });
    return 1;
  };
  EXPECT_EQ(in_child(body), kStatus);
}

TEST(ApiExit, AStaticObjectMayCallShutdown) {
  const auto body = [] {
    kolo::init();
    struct Guard {
      ~Guard() { kolo::shutdown(); }
    };
    static const Guard guard;
    interrupt_the_wait([](int) { std::exit(kStatus); });
    return 1;
  };
  EXPECT_EQ(in_child(body), kStatus);
}

TEST(ApiExit, InACallbackOfTheThreadThatDrives) {
  const auto body = [] {
    kolo::init();
    const float value = 1;
    kolo::allgather(&value, {1}, kolo::DataType::kFloat32,
                    [](const kolo::Shape&) -> void* { std::exit(kStatus); });
    return 1;
  };
  EXPECT_EQ(in_child(body), kStatus);
}

TEST(ApiExit, WithinInit) {
  const auto leave = [] { std::exit(kStatus); };
  EXPECT_EQ(in_child([&] {
              init_with(leave);
              return 1;
            }),
            kStatus);
  EXPECT_EQ(in_child([&] {
              start_and_end_once();
              init_with(leave);
              return 1;
            }),
            kStatus)
      << "when the end of the process is kolo's, too";
}

TEST(ApiExit, OfAnotherThreadThanTheOneInInit) {
  const auto body = [] {
    start_and_end_once();
    init_with([] {
      std::thread([] { std::exit(kStatus); }).detach();
      while (true) std::this_thread::sleep_for(std::chrono::hours(1));
    });
    return 1;
  };
  EXPECT_EQ(in_child(body), kStatus);
}

// The waiting thread's exception must not end the process before the other thread does.
TEST(ApiExit, OfAnotherThreadThanTheOneThatWaits) {
  const auto body = [] {
    // Registered before kolo's handler, so it runs after it, when the wait is over.
    std::atexit([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); });
    kolo::init();
    when_this_thread_sleeps([] { std::exit(kStatus); });
    wait_in_kolo();
    return 1;
  };
  EXPECT_EQ(in_child(body), kStatus);
}

// Signal handlers must not run on kolo's own threads, where exit() would wait for that thread.
TEST(ApiExit, SignalsComeToTheProgramsThreadsAlone) {
  const auto body = [] {
    kolo::init();
    sigset_t blocked;
    sigfillset(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    std::signal(SIGUSR1, [](int) { std::exit(1); });
    kill(getpid(), SIGUSR1);
    // By the time that kolo's threads have all run, any of them would have taken the signal.
    double value = 1;
    kolo::allreduce(&value, &value, {1}, kolo::DataType::kFloat64, {.name = "value"});
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGUSR1) == 1 ? kStatus : 2;
  };
  EXPECT_EQ(in_child(body), kStatus);
}

}  // namespace
