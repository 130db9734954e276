// own_thread(): starts a thread of kolo's own. The program's signal handlers run on the program's
// threads: one that calls exit() on a thread of kolo's would wait for that very thread.
#pragma once

#include <csignal>
#include <functional>
#include <thread>

namespace kolo {

/// Blocks all signals of the calling thread but those of faults and profilers. A thread that is
/// started meanwhile, be it by a library, has them blocked for good.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_ = {};
};

/// Runs `body` with BlockedSignals, and within an InCall.
std::thread own_thread(std::function<void()> body);

}  // namespace kolo
