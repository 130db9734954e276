// OrderedQueue: in-order submission. All ranks make the same calls in the same order, so an entry
// needs no name and no negotiation, and the cycle starts it as it arrives. The callers wait, and so
// drive or wake the cycle themselves. A mutex guards the queue.
#pragma once

#include "runtime/submission/entry.h"

#include <kolo/error.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

namespace kolo {

class OrderedQueue {
 public:
  /// Any thread. The order of calls is the order of operations. Fails with the error of close().
  Status submit(EntryPtr entry);
  /// Token holder: appends the submitted entries.
  void drain(std::vector<EntryPtr>& entries);
  /// Token holder: an operation other than a message is finished.
  void finish_one() { unfinished_.fetch_sub(1, std::memory_order_relaxed); }
  /// Token holder: a message is finished.
  void finish_message() { messages_.fetch_sub(1, std::memory_order_relaxed); }
  /// Token holder: whether nothing but messages is in flight, counting every submit() that this
  /// thread knows of.
  bool idle() const { return unfinished_.load(std::memory_order_acquire) == 0; }
  /// Any thread: operations and messages that were submitted and are not finished.
  int in_flight() const {
    return unfinished_.load(std::memory_order_acquire) + messages_.load(std::memory_order_acquire);
  }
  /// Refuses further entries with `error`. Only the first call counts.
  void close(const Error& error);

 private:
  std::mutex mutex_;
  std::atomic<int> unfinished_ = 0;  ///< without messages
  std::atomic<int> messages_ = 0;
  std::vector<EntryPtr> entries_;
  std::optional<Error> closed_;
};

}  // namespace kolo
