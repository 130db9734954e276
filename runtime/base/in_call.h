// InCall: marks that this thread is inside a call of kolo, or is one of kolo's own threads. kolo
// checks this at process exit: exit() in a signal handler or a callback may run on a thread that
// holds the progress token or a lock and never releases it. Any thread, also in a signal handler.
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

  /// Whether the calling thread is inside a call of kolo.
  static bool here() noexcept { return depth_ > 0; }

 private:
  static constinit thread_local int depth_;
};

}  // namespace kolo
