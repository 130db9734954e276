// OrderedQueue: the ordered door. Callers on every rank make the same calls in the same order, so
// an entry needs no name and no negotiation; the cycle starts it as it comes. Its callers wait, and
// so drive or wake the cycle themselves. Mutex inside.
#pragma once

#include "runtime/submission/entry.h"

#include <kolo/error.h>

#include <mutex>
#include <optional>
#include <vector>

namespace kolo {

class OrderedQueue {
 public:
  /// Any thread; the order of calls is the order of operations. Fails with the error of close().
  Status submit(Entry entry);
  /// Token holder: appends what was submitted.
  void drain(std::vector<Entry>& entries);
  /// Refuses further entries. The first call counts.
  void close(const Error& error);

 private:
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::optional<Error> closed_;
};

}  // namespace kolo
