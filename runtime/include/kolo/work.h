// Work: the user's handle on one submitted operation, as c10d::Work in PyTorch and Horovod's
// handle. Any thread may test or wait. The runtime completes each Work exactly once.
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
  void* handle = nullptr;  ///< a cudaStream_t; null: the default stream
};

/// The result of an operation besides its output. After a failure only `value` is set.
struct Outcome {
  /// Ranks that contributed data. A rank may take part without data: AllreduceOptions::absent.
  int contributors = 0;
  /// Ranks that have not joined: the divisor of an average. At least `contributors`.
  int participants = 0;
  /// Rows received from each rank, for an allgather, a gather (at its root) or an alltoall;
  /// otherwise empty.
  std::vector<std::int64_t> received_splits = {};
  /// Join: the rank that joined last. Added process set: its id. Message: the other rank. Failure
  /// because ranks are at different steps of training: the highest of these steps. Otherwise 0.
  std::int64_t value = 0;
  /// Operation on CUDA memory: done after the operation's last work on the device. Otherwise null.
  std::shared_ptr<const DeviceEvent> on_device = {};
};

class KOLO_API Work {
 public:
  /// Drives the runtime while a user thread waits for `work`. drive() returns once `work` is done
  /// or `until` has passed. It returns false at once if it cannot drive; the waiter then sleeps
  /// until the operation completes.
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
  /// within twice KOLO_OPERATION_TIMEOUT, so wait() returns. `until` bounds only this wait:
  /// kTimeout if it passes first, and the operation goes on.
  Status wait(
      std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());

  /// Makes `stream` wait for the result of an operation on CUDA memory; the host does not wait.
  /// Needed because such an operation is done when all of its work is enqueued on the device. Does
  /// nothing for an operation on host memory. Precondition: done() and succeeded. kDevice if CUDA
  /// fails; kUnsupported while a CUDA graph is captured from the stream.
  Status order(CudaStream stream) const;

  /// Calls `told` once when the operation is done: on the thread that completes the operation, or
  /// at once on this thread if it is already done. `told` must return soon, and must neither throw
  /// nor call kolo, because the runtime waits for it. Longer work belongs on a thread of the
  /// caller.
  void on_done(std::function<void()> told);

  /// Precondition: done().
  const Outcome& outcome() const noexcept { return outcome_; }
  int contributors() const noexcept { return outcome_.contributors; }
  int participants() const noexcept { return outcome_.participants; }
  const std::vector<std::int64_t>& received_splits() const noexcept {
    return outcome_.received_splits;
  }

  /// Called by the runtime exactly once, on the thread that holds the progress token.
  void complete(Status status, Outcome outcome = {});

 private:
  std::atomic<bool> done_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status status_;
  Outcome outcome_;
  std::vector<std::function<void()>> told_;  ///< called once the operation is done
  std::weak_ptr<Driver> driver_;
};

}  // namespace kolo
