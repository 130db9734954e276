// Ends the process, and says where it was, when a random program takes too long. Of the main
// thread.
#pragma once

#include <kolo/kolo.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace kolo::test {

class Watch {
 public:
  explicit Watch(std::chrono::seconds limit) : limit_(limit), thread_([this] { run(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void begin(std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    seed_ = seed;
    deadline_ = std::chrono::steady_clock::now() + limit_;
    changed_.notify_all();
  }
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    what_ = what;
  }
  std::string what() {
    const std::lock_guard lock(mutex_);
    return what_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      changed_.wait_until(lock, deadline_);
      if (ended_ || std::chrono::steady_clock::now() < deadline_) continue;
      std::fprintf(stderr, "rank %d hangs with --seed %llu: %s\n", kolo::rank(),
                   static_cast<unsigned long long>(seed_), what_.c_str());
      // So that the others say where they hang, too.
      std::this_thread::sleep_for(std::chrono::seconds(2));
      ::_exit(2);
    }
  }

  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::uint64_t seed_ = 0;
  std::string what_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace kolo::test
