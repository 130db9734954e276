// Ends a random program of a stress test that hangs, and prints its last actions.
#pragma once

#include <kolo/kolo.h>

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace kolo::test {

/// Any thread.
class HangWatch {
 public:
  explicit HangWatch(std::chrono::seconds limit) : limit_(limit), thread_([this] { run(); }) {}
  ~HangWatch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  /// A program with this seed begins; the time limit starts now.
  void begin(std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    seed_ = seed;
    notes_.clear();
    deadline_ = std::chrono::steady_clock::now() + limit_;
    changed_.notify_all();
  }
  /// The current action of one of the program's threads.
  void note(const std::string& what, int thread = 0) {
    const std::lock_guard lock(mutex_);
    notes_[thread] = what;
  }
  std::string what() {
    const std::lock_guard lock(mutex_);
    return text();
  }

 private:
  std::string text() const {
    std::string all;
    for (const auto& [thread, what] : notes_) all += (all.empty() ? "" : "; ") + what;
    return all;
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      changed_.wait_until(lock, deadline_);
      if (ended_ || std::chrono::steady_clock::now() < deadline_) continue;
      std::fprintf(stderr, "rank %d hangs with --seed %llu: %s\n", kolo::rank(),
                   static_cast<unsigned long long>(seed_), text().c_str());
      // Give the other ranks time to print where they hang, too.
      std::this_thread::sleep_for(std::chrono::seconds(2));
      ::_exit(2);
    }
  }

  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::uint64_t seed_ = 0;
  std::map<int, std::string> notes_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace kolo::test
