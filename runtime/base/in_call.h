// InCall: marks that this thread is within a call of kolo, or is kolo's own. The end of the process
// asks: exit() in a signal handler or in a callback runs on a thread that may hold the progress
// token or a lock, and never gives it back. Any thread, also within a signal handler.
#pragma once

#include <atomic>

namespace kolo {

class InCall {
 public:
  InCall() noexcept {
    ++depth_;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~InCall() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    --depth_;
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

  /// Whether the calling thread is in one.
  static bool here() noexcept { return depth_ > 0; }

 private:
  static constinit thread_local int depth_;
};

}  // namespace kolo
