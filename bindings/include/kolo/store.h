// A key-value store of the user's own, over which ranks find each other. Part of <kolo/kolo.h>.
#pragma once

#include <kolo/export.h>

#include <chrono>
#include <string>

namespace kolo {

/// What kolo needs of a store that all ranks reach, as torch's c10d::Store. Called during init() by
/// the thread that calls it; a failure is an exception, whose text is in what init() throws.
class KOLO_API KeyValueStore {
 public:
  virtual ~KeyValueStore();
  /// Any bytes. kolo sets each key once.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until some rank has set the key; throws after `timeout`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

}  // namespace kolo
