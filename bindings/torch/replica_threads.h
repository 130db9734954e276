// Threads that compute at the same time as the caller, kept between calls: one more call costs no
// start of a thread. Used by Replicas; run() by one thread at a time. Private to bindings/torch.
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

  /// Calls compute(0) here and compute(1) … compute(count - 1) on threads of their own, under this
  /// thread's settings (grad mode, autocast). Returns when all have ended; throws what the first of
  /// them in this order has thrown.
  void run(std::size_t count, const std::function<void(std::size_t)>& compute);

 private:
  struct Job;
  void work(std::size_t index);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;  ///< thread i is the one of index i + 1
  // Guarded by mutex_:
  Job* job_ = nullptr;
  std::size_t number_ = 0;   ///< of the job, counted
  std::size_t running_ = 0;  ///< threads that have not ended it
  bool stops_ = false;
};

}  // namespace kolo
