// Work: the user's handle on one submitted operation (as torch's c10d::Work and Horovod's handle).
// Any thread may test or wait; the runtime completes it exactly once.
#pragma once

#include <kolo/error.h>
#include <kolo/export.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace kolo {

class DeviceEvent;

/// A stream of this rank's CUDA device.
struct CudaStream {
  void* handle = nullptr;  ///< a cudaStream_t; null is the default stream
};

/// What an operation that has succeeded tells besides its output. One that has failed tells
/// `value` alone.
struct Outcome {
  /// Ranks that contributed memory (a rank may take part without: AllreduceOptions::absent).
  int contributors = 0;
  /// Ranks that have not joined: what an average divides by, and contributors at most.
  int participants = 0;
  /// Of an allgather, a gather (at its root) and an alltoall: rows that came from each rank.
  std::vector<std::int64_t> received_splits = {};
  /// Of a join the rank that came last, of an added process set its id. Of one that has failed for
  /// ranks at different steps of training, the highest of these, else 0.
  std::int64_t value = 0;
  /// Of an operation on CUDA memory: after its last work there.
  std::shared_ptr<const DeviceEvent> on_device = {};
};

class KOLO_API Work {
 public:
  /// Helps the operation along while a user thread waits: drives the runtime itself, or returns
  /// false at once when it cannot (then the waiter sleeps until completion). It must return once
  /// `work` is done or `until` has passed.
  class Driver {
   public:
    virtual ~Driver() = default;
    virtual bool drive(Work& work, std::chrono::steady_clock::time_point until) = 0;
  };

  Work() = default;
  explicit Work(std::weak_ptr<Driver> driver) : driver_(std::move(driver)) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// True once the operation has succeeded or failed. Never blocks.
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }

  /// Blocks until the operation is done and returns its status. The runtime ends every operation
  /// within twice KOLO_OPERATION_TIMEOUT, so this returns; `until` bounds this wait alone and
  /// yields kTimeout while the operation goes on.
  Status wait(
      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

  /// Of an operation on CUDA memory, which is done when all of its work is handed in to the device:
  /// what the stream is given from now on comes after the result. The host does not wait. Nothing
  /// to do for one on host memory. Precondition: done() and succeeded. kDevice.
  Status order(CudaStream stream) const;

  /// Calls `told` once when the operation is done: from the thread that completes it, or at once if
  /// it is done already. It must return soon, and neither throw nor call kolo: everything else
  /// waits for it. Work that takes longer belongs to a thread of the caller's own.
  void on_done(std::function<void()> told);

  /// Precondition: done().
  const Outcome& outcome() const noexcept { return outcome_; }
  int contributors() const noexcept { return outcome_.contributors; }
  int participants() const noexcept { return outcome_.participants; }
  const std::vector<std::int64_t>& received_splits() const noexcept {
    return outcome_.received_splits;
  }

  /// Called by the runtime, exactly once, from the thread that holds the progress token.
  void complete(Status status, Outcome outcome = {});

 private:
  std::atomic<bool> done_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status status_;
  Outcome outcome_;
  std::vector<std::function<void()>> told_;  ///< once it is done
  std::weak_ptr<Driver> driver_;
};

}  // namespace kolo
