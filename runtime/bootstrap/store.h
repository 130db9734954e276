// Store: a key-value store with deadlines, over which ranks find each other (after gloo's and
// torch's rendezvous stores). Used by the thread that calls init. Decorators build on it, and so do
// rendezvous methods without a collective of their own.
#pragma once

#include "runtime/base/deadline.h"

#include <kolo/error.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// What each rank gave, by rank; nothing for a rank that did not come in time.
using Gathered = std::vector<std::optional<std::string>>;

class Store {
 public:
  virtual ~Store() = default;
  /// Publishes a value. A key is set once; setting it again is kInvalidArgument.
  virtual Status set(std::string_view key, std::string value) = 0;
  /// Waits for the value and returns it. At the deadline: kTimeout, naming the key.
  virtual Result<std::string> get(std::string_view key, Deadline deadline) = 0;
  /// Sets the key unless it has a value, as one step for all ranks, and returns the value that it
  /// has then. kUnsupported where the store has no such step.
  virtual Result<std::string> set_once(std::string_view key, std::string value);
  /// Sets "<phase>/<rank>" and waits for those of all ranks. At the deadline, returns what came.
  virtual Result<Gathered> exchange(std::string_view phase, int rank, int size, std::string value,
                                    Deadline deadline);
  /// The caller has failed in the meeting because of `why` and does not use the store again.
  /// Returns the meeting's first failure.
  virtual Error give_up(Error why) { return why; }
  /// The caller has met the others and does not use the store again.
  virtual void leave() {}
};

}  // namespace kolo
