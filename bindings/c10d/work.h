// The c10d::Work of one call on a ProcessGroupKolo: one operation of kolo, or several; what is left
// to do with their results; and its future, if somebody asks for it.
//
// Any thread may wait or look. Results that are not where the user wants them are copied there by
// whoever waits, looks or completes the future first, never by the progress thread. Who waits or
// looks leaves the future complete behind it, as c10d::Reducer and others expect.
#pragma once

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

/// What was started for a call.
struct Started {
  std::vector<std::shared_ptr<Work>> works = {};
  std::vector<torch::Tensor> results = {};
  torch::Device device = torch::kCPU;
  /// Once all have succeeded: copies results to where the user wants them. May throw.
  std::function<void()> finish = {};
  int peer = -1;  ///< of a message
  // For torch's profiler, which counts from here to the end of the last operation.
  const char* title = nullptr;             ///< "kolo:all_reduce"; not owned
  std::vector<torch::Tensor> inputs = {};  ///< whose shapes it shows
};

class GroupWork;

/// Completes futures, whose callbacks are user code: on a thread of its own, which starts with the
/// first of them.
class FutureThread {
 public:
  FutureThread();
  FutureThread(const FutureThread&) = delete;
  FutureThread& operator=(const FutureThread&) = delete;
  /// Waits until all that were begun are completed, unless it is called from a callback.
  ~FutureThread();

  struct State;

 private:
  friend class GroupWork;
  std::shared_ptr<State> state_;
};

class GroupWork final : public c10d::Work {
 public:
  struct Call {
    c10d::OpType type;
    int rank;  ///< of this process in the group
    std::uint64_t sequence;
    std::chrono::milliseconds timeout;  ///< kUnsetTimeout: as long as the operation may take
  };
  GroupWork(Started started, const Call& call, const FutureThread& futures);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return started_.peer; }
  std::vector<torch::Tensor> result() override { return started_.results; }
  /// On CUDA tensors the current stream goes on after the result; the host does not wait for it.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  /// Of the list of results; complete when wait() returns. Its callbacks run on a thread of the
  /// group's, or on one that waits or looks first. Asked for within one of them, it is completed
  /// before this returns.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return call_.sequence; }

  /// Once; does nothing where nobody has asked for it. Precondition: all operations are done.
  void complete_future();

 private:
  /// Tells torch's profiler of the end; shared with who ends the last operation.
  struct Recording {
    std::once_flag once;
    std::function<void()> end;
    void stop() {
      std::call_once(once, [this] { end(); });
    }
  };

  bool all_done() const;
  /// Does `call` once all operations are done: here, or on the thread that ends the last.
  void when_done(const std::function<void()>& call) const;
  /// Precondition: all operations are done. Their outcome becomes the call's, once.
  void settle() const;
  /// Precondition as settle()'s. The current stream goes on after them. Throws what has failed.
  void take_results() const;

  const Started started_;
  const Call call_;
  std::weak_ptr<FutureThread::State> futures_;

  mutable std::once_flag settled_;
  mutable std::exception_ptr failure_;
  mutable std::optional<c10::Event> copied_;  ///< on a device: after finish()
  std::shared_ptr<Recording> recording_;      ///< null: nobody profiles
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> is_completing_ = false;  ///< the future
};

}  // namespace kolo::c10d_binding
