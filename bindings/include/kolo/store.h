// A key-value store that the user provides, over which the ranks find each other. Part of
// <kolo/kolo.h>.
#pragma once

#include <kolo/export.h>

#include <chrono>
#include <string>

namespace kolo {

/// The operations that kolo needs of a store that all ranks can reach, like torch's c10d::Store:
///
///   struct MyStore : kolo::KeyValueStore {
///     void set(const std::string& key, const std::string& value) override;
///     std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
///   };
///   kolo::init({.rank = rank, .size = size, .store = std::make_shared<MyStore>()});
///
/// - init() calls the store, on the thread that called init(). In an elastic job newcomers() and
///   enter_next_world() do so, too, as does elastic::run().
/// - Report a failure by an exception. init() includes its text in its own error.
class KOLO_API KeyValueStore {
 public:
  virtual ~KeyValueStore();
  /// Stores any bytes. kolo sets each key once.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until some rank has set the key. Throws after `timeout`.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Stores the value unless the key has one, as one step for all ranks, and returns the value that
  /// the key has then. Elastic jobs need it: the store then decides who is in a world. Default:
  /// throws, and the loss of a rank ends the job.
  virtual std::string set_once(const std::string& key, const std::string& value);
  /// Whether this process serves the store, which so ends with it. An elastic job then warns at its
  /// start that it does not survive this process. Default: false.
  virtual bool is_served_here() const;
};

}  // namespace kolo
