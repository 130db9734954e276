// Threads that compute in parallel with the caller and are kept between calls, so that a call does
// not start threads. Used by Replicas; run() by one thread at a time. Private to bindings/torch.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kolo {

class ReplicaThreads {
 public:
  ReplicaThreads() = default;
  /// Ends the threads.
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Calls compute(0) here and compute(1) … compute(count - 1) on other threads, with this thread's
  /// settings (grad mode, autocast). Returns when all have ended; rethrows the exception of the
  /// lowest index.
  void run(std::size_t count, const std::function<void(std::size_t)>& compute);

 private:
  struct Job;
  void work(std::size_t index);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;  ///< thread i computes index i + 1
  // Guarded by mutex_:
  Job* job_ = nullptr;
  std::size_t number_ = 0;   ///< counts the jobs
  std::size_t running_ = 0;  ///< threads that have not finished the job
  bool stops_ = false;
};

}  // namespace kolo
