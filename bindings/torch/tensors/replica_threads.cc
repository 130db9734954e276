#include "bindings/torch/tensors/replica_threads.h"

#include <ATen/ThreadLocalState.h>

namespace kolo {

struct ReplicaThreads::Job {
  std::size_t count;
  const std::function<void(std::size_t)>& compute;
  at::ThreadLocalState settings;  ///< settings of the caller
  std::vector<std::exception_ptr> failures;

  void compute_one(std::size_t index) {
    try {
      compute(index);
    } catch (...) {
      failures[index] = std::current_exception();
    }
  }
};

ReplicaThreads::~ReplicaThreads() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::work(std::size_t index) {
  std::size_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || number_ != seen; });
    if (stops_) return;
    seen = number_;
    Job* const job = job_;
    // The job is over, or has fewer replicas than this thread's index.
    if (job == nullptr || index >= job->count) continue;
    lock.unlock();
    {
      const at::ThreadLocalStateGuard guard(job->settings);
      job->compute_one(index);
    }
    lock.lock();
    if (--running_ == 0) changed_.notify_all();
  }
}

void ReplicaThreads::run(std::size_t count, const std::function<void(std::size_t)>& compute) {
  Job job{count, compute, {}, std::vector<std::exception_ptr>(count)};
  while (threads_.size() + 1 < count) {
    threads_.emplace_back([this, index = threads_.size() + 1] { work(index); });
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = &job;
    ++number_;
    running_ = count - 1;
  }
  changed_.notify_all();
  job.compute_one(0);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0; });
    job_ = nullptr;
  }
  for (const std::exception_ptr& failure : job.failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace kolo
