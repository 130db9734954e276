// The c10d::Work of one call on a ProcessGroupKolo. It holds one or more operations of kolo, the
// copies still to be made of their results, and a future if the user asks for one.
//
// Any thread may wait or test. Results that belong elsewhere are copied there by the first thread
// that waits, tests or completes the future, never by the progress thread. After wait(), or a test
// that finds the work done, the future is complete; c10d::Reducer and others expect this.
#pragma once

#include "bindings/c10d/hooks.h"

#include <kolo/kolo.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace kolo::c10d_binding {

/// Most calls are one operation, and a small one is done before its call returns.
using Works = c10::SmallVector<std::shared_ptr<Work>, 1>;

/// The operations that a call has started.
struct Started {
  Works works = {};
  std::vector<torch::Tensor> results = {};
  torch::Device device = torch::kCPU;
  /// Copies results to where the user wants them; runs once all works have succeeded. May throw.
  std::function<void()> finish = {};
  int peer = -1;  ///< peer of a message
  /// A receive from any rank: the group's ranks in the world.
  std::vector<int> senders = {};
  // For torch's profiler, which measures from here to the end of the last operation.
  const char* title = nullptr;  ///< "kolo:all_reduce"; not owned
  /// The profiler shows their shapes. Not owned: only until the GroupWork is made.
  c10::ArrayRef<torch::Tensor> inputs = {};
};

class GroupWork;

/// Completes futures, whose callbacks are user code, on a thread of its own. The thread starts with
/// the first future.
class FutureThread {
 public:
  FutureThread();
  FutureThread(const FutureThread&) = delete;
  FutureThread& operator=(const FutureThread&) = delete;
  /// Waits until all begun futures are complete, unless a callback calls it.
  ~FutureThread();

  struct State;

 private:
  friend class GroupWork;
  std::shared_ptr<State> state_;
};

/// Waits until the futures of all groups are complete and no abort hook of a work runs, after the
/// end of the world.
KOLO_API void wait_for_user_code();

class GroupWork final : public c10d::Work {
 public:
  struct Call {
    c10d::OpType type;
    int rank;  ///< rank of this process in the group
    std::uint64_t sequence;
    std::chrono::milliseconds timeout;  ///< kUnsetTimeout: no timeout of its own
  };
  GroupWork(Started started, const Call& call, const FutureThread& futures,
            std::shared_ptr<const GroupHooks> hooks);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<torch::Tensor> result() override { return started_.results; }
  /// On CUDA tensors the current stream waits for the result; the host does not.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  /// Future of the list of results; complete when wait() returns. Its callbacks run on the group's
  /// future thread, or on the first thread that waits or tests. When a callback asks for a future,
  /// the future is completed before getFuture() returns.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return call_.sequence; }
  /// Another number for each work of the process. It is no `override`, because older LibTorch has
  /// no such call.
  virtual std::uint64_t getCompletionKey() const { return key_; }

  /// Runs once; does nothing if nobody has asked for the future. Precondition: all operations are
  /// done.
  void complete_future();

  const Started& started() const { return started_; }

 private:
  /// Tells torch's profiler that the call has ended. Shared with the thread that ends the last
  /// operation.
  struct Recording {
    std::once_flag once;
    std::function<void()> end;
    void stop() {
      std::call_once(once, [this] { end(); });
    }
  };

  bool all_done() const;
  /// Whether it has failed because the world has ended in order. Precondition: all_done().
  bool has_ended() const;
  /// Runs `call` once all operations are done: here, or on the thread that ends the last one.
  void when_done(const std::function<void()>& call) const;
  /// Throws the operations' failure, or finishes the call. Precondition: all operations are done.
  void take_outcome() const;
  [[noreturn]] void raise_timeout(std::chrono::milliseconds timeout) const;
  /// Turns the operations' outcome into the call's, once. Precondition: all operations are done.
  void settle() const;
  void settle_once() const;
  /// Makes the current stream wait for the results; throws the call's failure. Precondition: all
  /// operations are done.
  void take_results() const;

  const Started started_;
  const Call call_;
  const std::uint64_t key_;
  std::weak_ptr<FutureThread::State> futures_;
  const std::shared_ptr<const GroupHooks> hooks_;

  mutable std::mutex settle_mutex_;
  mutable std::atomic<bool> settled_ = false;
  mutable std::exception_ptr failure_;
  mutable std::optional<c10::Event> copied_;  ///< on a device: recorded after finish()
  std::shared_ptr<Recording> recording_;      ///< null: no profiler is active
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> has_future_ = false;
  std::atomic<bool> is_completing_ = false;  ///< refers to the future
};

}  // namespace kolo::c10d_binding
