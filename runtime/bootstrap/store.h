// Store: a key-value store with deadlines, over which ranks find each other (after gloo's and
// torch's rendezvous stores). Used by the thread that calls init; decorators and the ways in that
// have no collective of their own build on it.
#pragma once

#include "runtime/base/deadline.h"

#include <kolo/error.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kolo {

/// What each rank gave, by rank; nothing where it did not come in time.
using Gathered = std::vector<std::optional<std::string>>;

class Store {
 public:
  virtual ~Store() = default;
  /// Publishes a value. A key is set once; setting it again is kInvalidArgument.
  virtual Status set(std::string_view key, std::string value) = 0;
  /// The value, waiting for it until the deadline: then kTimeout, naming the key.
  virtual Result<std::string> get(std::string_view key, Deadline deadline) = 0;
  /// Sets "<phase>/<rank>" and waits for those of all ranks. At the deadline it says who is there.
  virtual Result<Gathered> exchange(std::string_view phase, int rank, int size, std::string value,
                                    Deadline deadline);
  /// The caller has failed in the meeting for `why`, calls nothing here again, and gets back what
  /// the meeting has failed for first.
  virtual Error give_up(Error why) { return why; }
  /// The caller has met the others and calls nothing here again.
  virtual void leave() {}
};

}  // namespace kolo
